//! Formats by name: what a string must be to be a label, a UUID, a date.

use base64::Engine as _;
use karmada_meta::names;

use super::Answer;
use crate::library::{net::Url, time};
use crate::value::Val;

const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

pub(super) fn call<'a>(name: &str, args: &[Val<'a>]) -> Option<Answer<'a>> {
    let known = |wanted: &str| FORMATS.iter().find(|format| **format == wanted).copied();
    Some(Ok(match (name, args) {
        ("format.named", [Val::Text(wanted)]) => {
            known(wanted).map_or(Val::Optional(None), |format| Val::some(Val::Format(format)))
        }
        ("validate", [Val::Format(format), Val::Text(text)]) => {
            let errors = errors(format, text);
            if errors.is_empty() {
                Val::Optional(None)
            } else {
                Val::some(Val::list(errors.into_iter().map(Val::text).collect()))
            }
        }
        (_, []) => Val::Format(known(name.strip_prefix("format.")?)?),
        _ => return None,
    }))
}

fn errors(format: &str, text: &str) -> Vec<String> {
    let prefix = |check: fn(&str) -> Vec<String>| {
        // A prefix may end with a dash: something follows it.
        let text = text.strip_suffix('-').map_or_else(|| text.to_owned(), |t| format!("{t}a"));
        check(&text)
    };
    let unless = |fine: bool, what: &str| if fine { Vec::new() } else { vec![what.to_owned()] };
    match format {
        "dns1123Label" => names::dns1123_label_errors(text),
        "dns1123Subdomain" => names::dns1123_subdomain_errors(text),
        "dns1035Label" => names::dns1035_label_errors(text),
        "qualifiedName" => names::qualified_name_errors(text),
        "dns1123LabelPrefix" => prefix(names::dns1123_label_errors),
        "dns1123SubdomainPrefix" => prefix(names::dns1123_subdomain_errors),
        "dns1035LabelPrefix" => prefix(names::dns1035_label_errors),
        "labelValue" => names::label_value_errors(text),
        "uri" => unless(Url::parse(text).is_some(), "invalid URI"),
        "uuid" => {
            let hex = |c: char| c.is_ascii_hexdigit();
            let plain: String = text.chars().filter(|c| *c != '-').collect();
            unless(plain.len() == 32 && plain.chars().all(hex), "does not match the UUID format")
        }
        "byte" => unless(base64::engine::general_purpose::STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => unless(text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10, "invalid date"),
        _ => unless(time::parse_timestamp(text).is_some(), "invalid datetime"),
    }
}
