//! What may stand in a name, a label or a path segment, and what Kubernetes says when it may not.
//!
//! Every rule comes in two forms: `…_errors` gives each message of its own, as a list of field errors wants it;
//! the plain function joins them.

/// Longest DNS label, and longest name part or value of a label.
pub const MAX_LABEL: usize = 63;
/// Longest DNS subdomain, which most object names are.
pub const MAX_SUBDOMAIN: usize = 253;
/// Longest name of a member cluster (Karmada's limit: it prefixes it to names of its own).
pub const MAX_CLUSTER_NAME: usize = 48;

const LABEL_FMT: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FMT: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_FMT: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_FMT: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const QUALIFIED_MSG: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The text of a failed regular expression: what is wrong, examples, the expression.
pub fn regex_error(message: &str, regex: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{message} (regex used for validation is '{regex}')");
    }
    let mut out = format!("{message} (e.g. ");
    for (i, example) in examples.iter().enumerate() {
        if i > 0 {
            out.push_str(" or ");
        }
        out.push('\'');
        out.push_str(example);
        out.push_str("', ");
    }
    out + "regex used for validation is '" + regex + "')"
}

/// `must be no more than 63 characters`.
pub fn max_len_error(length: usize) -> String {
    format!("must be no more than {length} characters")
}

fn max_bytes_error(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

/// Whether `text` begins and ends with an `edge` byte and has only `edge` and `inner` bytes between.
fn framed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            edge(first) && edge(last) && bytes.iter().all(|&b| edge(b) || inner(b))
        }
        _ => false,
    }
}

fn lower_alnum(b: u8) -> bool {
    b.is_ascii_lowercase() || b.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    framed(text, lower_alnum, |b| b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_qualified(text: &str) -> bool {
    framed(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

fn joined(errors: &[String]) -> Result<(), String> {
    if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
}

/// A DNS label of RFC 1123: namespaces, containers, volumes.
pub fn dns1123_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL {
        errors.push(max_len_error(MAX_LABEL));
    }
    if !is_label(text) {
        errors.push(if is_subdomain(text) {
            // It could be a subdomain: say which rule it broke rather than print the whole expression.
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_FMT,
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// [`dns1123_label_errors`], joined.
pub fn dns1123_label(text: &str) -> Result<(), String> {
    joined(&dns1123_label_errors(text))
}

/// A DNS subdomain of RFC 1123: the names of most objects.
pub fn dns1123_subdomain_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_SUBDOMAIN {
        errors.push(max_len_error(MAX_SUBDOMAIN));
    }
    if !is_subdomain(text) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN_FMT,
            &["example.com"],
        ));
    }
    errors
}

/// [`dns1123_subdomain_errors`], joined.
pub fn dns1123_subdomain(text: &str) -> Result<(), String> {
    joined(&dns1123_subdomain_errors(text))
}

/// A DNS label of RFC 1035, which may not begin with a digit: Services.
pub fn dns1035_label_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL {
        errors.push(max_len_error(MAX_LABEL));
    }
    if !(is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            DNS1035_FMT,
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// [`dns1035_label_errors`], joined.
pub fn dns1035_label(text: &str) -> Result<(), String> {
    joined(&dns1035_label_errors(text))
}

/// The key of a label or annotation: a name with an optional DNS prefix.
pub fn qualified_name_errors(text: &str) -> Vec<String> {
    const EXAMPLES: [&str; 3] = ["MyName", "my.name", "123-abc"];
    let mut errors = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                errors
                    .extend(dns1123_subdomain_errors(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            name
        }
        _ => {
            errors.push(format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                regex_error(QUALIFIED_MSG, QUALIFIED_FMT, &EXAMPLES)
            ));
            return errors;
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > MAX_LABEL {
        errors.push(format!("name part {}", max_bytes_error(MAX_LABEL)));
    }
    if !is_qualified(name) {
        errors.push(format!("name part {}", regex_error(QUALIFIED_MSG, QUALIFIED_FMT, &EXAMPLES)));
    }
    errors
}

/// [`qualified_name_errors`], joined.
pub fn qualified_name(text: &str) -> Result<(), String> {
    joined(&qualified_name_errors(text))
}

/// The value of a label; may be empty.
pub fn label_value_errors(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > MAX_LABEL {
        errors.push(max_bytes_error(MAX_LABEL));
    }
    if !text.is_empty() && !is_qualified(text) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// [`label_value_errors`], joined.
pub fn label_value(text: &str) -> Result<(), String> {
    joined(&label_value_errors(text))
}

/// A name that may stand as one segment of a URL path: the least that any object name must be.
pub fn path_segment_errors(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ['/', '%'].iter().filter(|&&c| text.contains(c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// [`path_segment_errors`], joined.
pub fn path_segment(text: &str) -> Result<(), String> {
    joined(&path_segment_errors(text))
}

/// No cluster's name: `karmadactl register` asks for a certificate of an agent so called, to make roles with.
pub const RBAC_GENERATOR: &str = "rbac-generator";

/// The name of a member cluster, by Karmada's rule, but for the one name that is taken.
pub fn cluster_name_errors(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec!["must be not empty".to_owned()];
    }
    if text.len() > MAX_CLUSTER_NAME {
        return vec![max_len_error(MAX_CLUSTER_NAME)];
    }
    if text == RBAC_GENERATOR {
        return vec![format!(
            "must not be {RBAC_GENERATOR}, which karmadactl register uses; use another name"
        )];
    }
    dns1123_label_errors(text)
}

/// What Karmada names the Secret by with which users are impersonated on a cluster: the cluster's name and this.
const IMPERSONATOR: &str = "-impersonator";

/// Why a cluster that is to join may not be called so, which would be another's otherwise: the agent of the cluster
/// `m1` reads and writes the Secret `m1-impersonator`, in which the credentials of a cluster of that name stand.
pub fn joining_name_errors(text: &str) -> Vec<String> {
    let mut errors = cluster_name_errors(text);
    if let Some(other) = text.strip_suffix(IMPERSONATOR) {
        errors.push(format!(
            "must not end with {IMPERSONATOR}: the Secret of that name belongs to the Cluster {other}; use another name"
        ));
    }
    errors
}

/// Whether `text` may name a member cluster.
pub fn is_cluster_name(text: &str) -> bool {
    cluster_name_errors(text).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";

    #[test]
    fn good_names_pass() {
        let long = "a".repeat(63);
        for name in ["a", "a-b", "0", "x9", &long] {
            assert_eq!(dns1123_label(name), Ok(()));
            assert_eq!(dns1123_subdomain(name), Ok(()));
            assert_eq!(label_value(name), Ok(()));
            assert_eq!(qualified_name(name), Ok(()));
        }
        assert_eq!(dns1123_subdomain("a.b-c.9"), Ok(()));
        assert_eq!(qualified_name("example.com/My_name.x"), Ok(()));
        assert_eq!(label_value(""), Ok(()));
        assert!(is_cluster_name("member1"));
    }

    #[test]
    fn bad_names_are_told_in_kubernetes_words() {
        let long = "a".repeat(64);
        let long_value = "must be no more than 63 bytes".to_owned();
        for (got, want) in [
            (dns1123_subdomain_errors("Bad_"), vec![SUBDOMAIN.to_owned()]),
            (dns1123_subdomain_errors(""), vec![SUBDOMAIN.to_owned()]),
            (dns1123_subdomain_errors("a..b"), vec![SUBDOMAIN.to_owned()]),
            (dns1123_label_errors("a.b"), vec!["must not contain dots".to_owned()]),
            (dns1123_label_errors(&long), vec!["must be no more than 63 characters".to_owned()]),
            (label_value_errors(&long), vec![long_value.clone()]),
            (qualified_name_errors(&long), vec![format!("name part {long_value}")]),
            (qualified_name_errors("bad key"), vec![NAME_PART.to_owned()]),
            (
                qualified_name_errors("/"),
                vec![
                    "prefix part must be non-empty".to_owned(),
                    "name part must be non-empty".to_owned(),
                    NAME_PART.to_owned(),
                ],
            ),
            (path_segment_errors(".."), vec!["may not be '..'".to_owned()]),
            (
                path_segment_errors("a/%"),
                vec!["may not contain '/'".to_owned(), "may not contain '%'".to_owned()],
            ),
            (cluster_name_errors(""), vec!["must be not empty".to_owned()]),
            (cluster_name_errors(&long), vec!["must be no more than 48 characters".to_owned()]),
        ] {
            assert_eq!(got, want);
        }
        assert!(dns1035_label("1a").is_err_and(|e| e.starts_with("a DNS-1035 label must consist")));
        assert!(qualified_name("a/b/c").is_err_and(|e| e.ends_with("(e.g. 'example.com/MyName')")));
    }
}
