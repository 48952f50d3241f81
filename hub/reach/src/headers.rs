//! What of a request's headers goes on to a member, and what of its answer comes back.
//!
//! A client may not say in whose name the member is to act. Everything that could is removed first, with whatever
//! `Connection` names, since HTTP/2 and proxies drop what is named there; then the identity is set.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use karmada_apiserver::authn::UserInfo;
use karmada_client::head;
use karmada_core::{spent::SPENT, ways::PASSED_ON};

use crate::tunnel;

/// Headers of one connection, not of the message.
const HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// By which somebody says who they are, or whence they come; none of it is the member's business.
const OURS: [&str; 11] = [
    "authorization",
    "cookie",
    "expect",
    "host",
    "audit-id",
    "forwarded",
    "via",
    "x-real-ip",
    // By which something before the member's API would do other than what was judged.
    "x-http-method-override",
    "x-original-url",
    "x-rewrite-url",
];
const OURS_BEGIN: [&str; 4] = ["impersonate-", "x-remote-", "x-forwarded-", "karmada-"];
/// A token in the list of subprotocols, as kubectl's web clients send it.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// What a member says to browsers about itself would be taken as said by the hub.
const THEIRS: [&str; 10] = [
    "www-authenticate",
    "set-cookie",
    "clear-site-data",
    "strict-transport-security",
    "alt-svc",
    "refresh",
    "service-worker-allowed",
    "access-control-allow-origin",
    "access-control-allow-credentials",
    // That is between agent and hub.
    SPENT,
];
/// Of a client's headers an agent is sent what it [passes on](PASSED_ON), how long a body is, and these of a session. All else would
/// cross the link in vain.
const OF_SESSION: [&str; 7] = [
    "connection",
    "upgrade",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "x-stream-protocol-version",
];
/// What sessions may speak.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];
/// The longest that a client is told to wait by a header of an answer through a tunnel, in seconds.
const PATIENCE: u64 = 10;
/// What every user has; a member gives them itself.
const EVERYBODYS: [&str; 2] = ["system:authenticated", "system:unauthenticated"];

/// The protocol that a connection is to change to.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = named(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
}

/// Whether a client wants a session in another protocol.
///
/// # Errors
/// When it is one that is not carried: by others one could speak with what stands before a member's API.
pub(crate) fn session(headers: &HeaderMap) -> Result<bool, String> {
    let Some(protocol) = upgrade(headers) else { return Ok(false) };
    let known = |one: &str| PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(one));
    let several = headers.get_all(header::UPGRADE).iter().nth(1).is_some();
    if several || !protocol.to_str().is_ok_and(known) {
        return Err(format!("a connection changes to {} alone", PROTOCOLS.join(" or to ")));
    }
    if headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0")
        || headers.contains_key(header::TRANSFER_ENCODING)
    {
        return Err("a request that changes the protocol has no body".to_owned());
    }
    Ok(true)
}

/// Whether a member has agreed to what it was asked for.
pub(crate) fn agreed(asked: &HeaderMap, answer: &HeaderMap) -> bool {
    let text = |headers: &HeaderMap| upgrade(headers)?.to_str().ok().map(str::to_ascii_lowercase);
    text(asked).is_some() && text(asked) == text(answer)
}

/// What `Connection` names.
fn named(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|name| !name.is_empty())
}

/// Removes what is one connection's own.
fn without_hops(headers: &mut HeaderMap) {
    let also: Vec<HeaderName> = named(headers).filter_map(|name| name.parse().ok()).collect();
    for name in also {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(name);
    }
}

/// A client's headers as the member gets them, in the name of `user`, by whoever has `token` there.
///
/// # Errors
/// When a name cannot be a header's value.
pub(crate) fn forward(
    headers: &HeaderMap,
    user: &UserInfo,
    token: &str,
    audit_id: &str,
) -> Result<HeaderMap, String> {
    let mut headers = without_identity(headers);
    let mut bearer =
        value("token", &format!("Bearer {token}")).map_err(|_| "the token is no token".to_owned())?;
    bearer.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, bearer);
    headers.insert("impersonate-user", value("user", &user.name)?);
    for group in user.groups.iter().filter(|group| !EVERYBODYS.contains(&group.as_str())) {
        headers.append("impersonate-group", value("group", group)?);
    }
    headers.insert("audit-id", value("audit id", audit_id)?);
    Ok(headers)
}

/// The same as the cluster's agent gets them, which acts in the name of `user` by its own means.
///
/// # Errors
/// When a name could not be a header's value on the member.
pub(crate) fn to_agent(headers: &HeaderMap, user: &UserInfo, audit_id: &str) -> Result<HeaderMap, String> {
    let all = without_identity(headers);
    let is_session = all.contains_key(header::UPGRADE);
    let mut headers = HeaderMap::new();
    for (name, line) in &all {
        let is_sent = PASSED_ON.contains(&name.as_str()) || *name == header::CONTENT_LENGTH;
        if is_sent || (is_session && OF_SESSION.contains(&name.as_str())) {
            headers.append(name.clone(), line.clone());
        }
    }
    value("user", &user.name)?;
    for group in &user.groups {
        value("group", group)?;
    }
    headers.insert("audit-id", value("audit id", audit_id)?);
    // HPACK keeps few headers. The longest of those that come again says who asks, and the agent knows when it has crossed: whoever
    // asks chooses none of what is kept beside it.
    headers.values_mut().for_each(|line| line.set_sensitive(true));
    headers.insert(tunnel::USER, tunnel::told(user)?);
    Ok(headers)
}

/// What a head to an agent takes, in bytes, but for what the hub says of the user.
pub(crate) fn weight(uri: &Uri, headers: &HeaderMap) -> usize {
    let lines = headers.iter().filter(|(name, _)| name.as_str() != tunnel::USER);
    head::weight(lines, uri.path_and_query())
}

/// What somebody is named in a header. Space at an end is no part of a header's value: the member would read another name than
/// was judged.
fn value(what: &str, text: &str) -> Result<HeaderValue, String> {
    let made = HeaderValue::from_bytes(text.as_bytes());
    let whole = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    made.ok().filter(|_| whole).ok_or_else(|| format!("the {what} {text:?} cannot be sent in a header"))
}

/// A client's headers without what is one connection's own, and without whatever could say who asks.
fn without_identity(headers: &HeaderMap) -> HeaderMap {
    let protocol = upgrade(headers);
    let mut headers = headers.clone();
    without_hops(&mut headers);
    let strange = |name: &HeaderName| {
        let name = name.as_str();
        OURS.contains(&name) || OURS_BEGIN.iter().any(|start| name.starts_with(start))
    };
    let gone: Vec<HeaderName> = headers.keys().filter(|name| strange(name)).cloned().collect();
    for name in gone {
        headers.remove(name);
    }
    without_tokens(&mut headers);
    if let Some(protocol) = protocol {
        headers.remove(header::CONTENT_LENGTH);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    headers
}

/// Takes tokens out of the list of subprotocols. The others stay in their order.
fn without_tokens(headers: &mut HeaderMap) {
    let name = header::SEC_WEBSOCKET_PROTOCOL;
    let lists: Vec<HeaderValue> = headers.get_all(&name).iter().cloned().collect();
    headers.remove(&name);
    for list in lists {
        let Ok(text) = list.to_str() else { continue };
        if !text.contains(BEARER) {
            headers.append(&name, list);
            continue;
        }
        let kept: Vec<&str> = text.split(',').map(str::trim).filter(|one| !one.starts_with(BEARER)).collect();
        if let Ok(kept) = kept.join(", ").parse::<HeaderValue>()
            && !kept.is_empty()
        {
            headers.append(&name, kept);
        }
    }
}

/// A member's headers as the client gets them. `upgraded`: the connection changes its protocol.
pub(crate) fn back(headers: &mut HeaderMap, upgraded: bool) {
    let protocol = upgrade(headers).filter(|_| upgraded);
    without_hops(headers);
    for name in THEIRS {
        headers.remove(name);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What a member sends must not act as the hub's in a browser, and there are more kinds that could than one thinks of.
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
    if headers.get_all(header::CONTENT_TYPE).iter().nth(1).is_some() {
        // Of several the reader would choose.
        headers.remove(header::CONTENT_TYPE);
    }
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

/// Takes out of a refusal for how long to wait, where that is long: client-go waits as long as the header says before it asks again,
/// and says nothing meanwhile. It reads the header alone for that, so the body may say it.
pub(crate) fn without_long_wait(headers: &mut HeaderMap) {
    let mut lines = headers.get_all(header::RETRY_AFTER).iter();
    let seconds = lines.next().and_then(|line| line.to_str().ok()?.parse::<u64>().ok());
    let is_short = seconds.is_some_and(|seconds| seconds <= PATIENCE) && lines.next().is_none();
    if !is_short {
        headers.remove(header::RETRY_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        headers
    }

    fn lines(headers: &HeaderMap) -> Vec<String> {
        let mut lines: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    fn user() -> UserInfo {
        UserInfo::new("jane", ["dev", "system:authenticated"])
    }

    const IDENTITY: [&str; 4] =
        ["audit-id: id-1", "authorization: Bearer t", "impersonate-group: dev", "impersonate-user: jane"];

    #[test]
    fn nobody_says_who_they_are_but_the_hub() {
        let sent = headers(&[
            ("authorization", "Bearer mine"),
            ("cookie", "c"),
            ("impersonate-user", "system:admin"),
            ("impersonate-uid", "1"),
            ("impersonate-extra-scopes", "all"),
            ("impersonate-group", "system:masters"),
            ("x-remote-user", "root"),
            ("x-forwarded-for", "10.0.0.1"),
            ("karmada-user", "root"),
            ("connection", "Impersonate-User, authorization"),
            ("transfer-encoding", "chunked"),
            ("host", "hub"),
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/admin"),
        ]);
        assert_eq!(lines(&forward(&sent, &user(), "t", "id-1").unwrap()), IDENTITY);
    }

    #[test]
    fn an_agent_is_told_who_asks_by_the_hub_alone() {
        let sent = headers(&[
            ("karmada-user", "cm9vdA"),
            ("karmada-method", "DELETE"),
            ("karmada-upgrade", "h2c"),
            ("connection", "karmada-user"),
            ("impersonate-user", "system:admin"),
            ("authorization", "Bearer mine"),
            ("accept", "application/json"),
            // It would not pass these on.
            ("x-a", "b"),
            ("content-encoding", "gzip"),
            ("sec-websocket-key", "k"),
        ]);
        let mut made = to_agent(&sent, &user(), "id-1").unwrap();
        let told = made.remove("karmada-user").unwrap();
        assert_eq!(lines(&made), ["accept: application/json", "audit-id: id-1"]);
        let told = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, told).unwrap();
        let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
        let want = serde_json::json!({"username": "jane", "groups": ["dev", "system:authenticated"]});
        assert_eq!(told, want);
        for (name, group) in [("jane ", "g"), ("", "g"), ("a", "system:masters "), ("a", "x\ty")] {
            assert!(to_agent(&HeaderMap::new(), &UserInfo::new(name, [group]), "id").is_err(), "{name:?}");
        }
        // As many groups as the agent reads.
        let groups = |count: usize| UserInfo::new("jane", (0..count).map(|n| format!("group-{n:04}")));
        assert!(to_agent(&HeaderMap::new(), &groups(1000), "id").is_ok());
        assert!(to_agent(&HeaderMap::new(), &groups(3000), "id").unwrap_err().contains("groups"));
    }

    #[test]
    fn an_agent_gets_what_a_session_needs() {
        let sent = headers(&[
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-protocol", "v5"),
            ("x-stream-protocol-version", "v5"),
            ("x-stream-protocol-version", "v4"),
            ("x-a", "b"),
            ("user-agent", "kubectl"),
        ]);
        let mut made = to_agent(&sent, &user(), "id-1").unwrap();
        let uri = Uri::from_static("https://member/api?x=y");
        let weight_of_all = weight(&uri, &made);
        made.remove("karmada-user").unwrap();
        let want = [
            "audit-id: id-1",
            "connection: Upgrade",
            "sec-websocket-key: k",
            "sec-websocket-protocol: v5",
            "sec-websocket-version: 13",
            "upgrade: websocket",
            "user-agent: kubectl",
            "x-stream-protocol-version: v4",
            "x-stream-protocol-version: v5",
        ];
        assert_eq!(lines(&made), want);
        let bytes: usize = want.iter().map(|line| line.len() - ": ".len()).sum();
        assert_eq!(weight_of_all, bytes + "/api?x=y".len() + "?".len());
    }

    #[test]
    fn what_is_of_the_message_goes_on_in_its_order() {
        let sent = headers(&[
            ("connection", "keep-alive, Upgrade, x-private"),
            ("connection", "upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-private", "1"),
            ("x-stream-protocol-version", "v5.channel.k8s.io"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("sec-websocket-key", "k"),
            (
                "sec-websocket-protocol",
                "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4, v4",
            ),
            ("accept", "application/json"),
        ]);
        let made = forward(&sent, &user(), "t", "id-1").unwrap();
        let mut want = IDENTITY.map(str::to_owned).to_vec();
        want.extend(
            [
                "accept: application/json",
                "connection: Upgrade",
                "sec-websocket-key: k",
                "sec-websocket-protocol: v5.channel.k8s.io, v4",
                "upgrade: SPDY/3.1",
                "x-stream-protocol-version: v4.channel.k8s.io",
                "x-stream-protocol-version: v5.channel.k8s.io",
            ]
            .map(str::to_owned),
        );
        want.sort();
        assert_eq!(lines(&made), want);
        let versions: Vec<_> = made.get_all("x-stream-protocol-version").iter().collect();
        assert_eq!(versions, ["v5.channel.k8s.io", "v4.channel.k8s.io"]);
    }

    #[test]
    fn a_name_that_is_no_header_is_refused() {
        for (name, group) in [
            ("a\nb", "g"),
            ("jane ", "g"),
            (" jane", "g"),
            ("", "g"),
            ("a", "system:masters "),
            ("a", "\tx"),
            ("a", "x\ty"),
            ("a", ""),
        ] {
            let error = forward(&HeaderMap::new(), &UserInfo::new(name, [group]), "t", "id").unwrap_err();
            assert!(error.contains("cannot be sent"), "{name:?} {group:?}: {error}");
        }
        assert!(forward(&HeaderMap::new(), &user(), "t\r\nx: y", "id").is_err());
    }

    #[test]
    fn an_answer_comes_back_without_what_was_the_connections() {
        let answer = [
            ("connection", "Upgrade, x-hop"),
            ("upgrade", "websocket"),
            ("x-hop", "1"),
            ("www-authenticate", "Basic"),
            ("sec-websocket-accept", "s"),
        ];
        for (upgraded, want) in [
            (
                true,
                vec![
                    "connection: Upgrade",
                    "content-security-policy: sandbox",
                    "sec-websocket-accept: s",
                    "upgrade: websocket",
                    "x-content-type-options: nosniff",
                ],
            ),
            (
                false,
                vec![
                    "content-security-policy: sandbox",
                    "sec-websocket-accept: s",
                    "x-content-type-options: nosniff",
                ],
            ),
        ] {
            let mut answer = headers(&answer);
            back(&mut answer, upgraded);
            assert_eq!(lines(&answer), want);
        }
    }

    #[test]
    fn nobody_is_told_to_wait_for_long_by_a_header() {
        for (waits, want) in [
            (&["1"][..], Some("1")),
            (&["10"], Some("10")),
            (&["11"], None),
            (&["1200"], None),
            (&["1", "1200"], None),
            (&["-1"], None),
            (&["Fri, 31 Dec 1999 23:59:59 GMT"], None),
            (&[], None),
        ] {
            let lines: Vec<(&str, &str)> = waits.iter().map(|wait| ("retry-after", *wait)).collect();
            let mut answer = headers(&lines);
            without_long_wait(&mut answer);
            let left = answer.get("retry-after").map(|wait| wait.to_str().unwrap());
            assert_eq!(left, want, "{waits:?}");
        }
        let mut answer = headers(&[("karmada-spent", "share-1200-4194304")]);
        back(&mut answer, false);
        assert_eq!(lines(&answer), ["content-security-policy: sandbox", "x-content-type-options: nosniff"]);
    }

    #[test]
    fn sessions_are_of_two_protocols_and_without_a_body() {
        let asked = |lines: &[(&str, &str)]| {
            let mut all = vec![("connection", "Upgrade")];
            all.extend(lines);
            session(&headers(&all)).map_err(drop)
        };
        for (lines, want) in [
            (&[][..], Ok(false)),
            (&[("upgrade", "websocket")], Ok(true)),
            (&[("upgrade", "spdy/3.1")], Ok(true)),
            (&[("upgrade", "SPDY/3.1"), ("content-length", "0")], Ok(true)),
            (&[("upgrade", "h2c")], Err(())),
            (&[("upgrade", "websocket, h2c")], Err(())),
            (&[("upgrade", "websocket"), ("upgrade", "websocket")], Err(())),
            (&[("upgrade", "websocket"), ("content-length", "500")], Err(())),
            (&[("upgrade", "websocket"), ("transfer-encoding", "chunked")], Err(())),
        ] {
            assert_eq!(asked(lines), want, "{lines:?}");
        }
        assert_eq!(
            session(&headers(&[("upgrade", "websocket")])),
            Ok(false),
            "the connection does not say so"
        );
        let speaks = |protocol: &str| headers(&[("connection", "upgrade"), ("upgrade", protocol)]);
        assert!(agreed(&speaks("websocket"), &speaks("WebSocket")));
        assert!(
            !agreed(&speaks("websocket"), &speaks("h2c")) && !agreed(&speaks("websocket"), &HeaderMap::new())
        );
        let made = forward(
            &headers(&[("connection", "upgrade"), ("upgrade", "websocket"), ("content-length", "0")]),
            &user(),
            "t",
            "i",
        );
        assert!(!made.unwrap().contains_key(header::CONTENT_LENGTH));
    }

    #[test]
    fn a_members_page_does_not_act_as_the_hubs() {
        let pages = ["Text/HTML; charset=utf-8", "image/svg+xml", "application/xhtml+xml", "text/xml", ""];
        for page in pages {
            let mut answer = headers(&[
                ("content-type", page),
                ("content-security-policy", "script-src *"),
                ("set-cookie", "a=b"),
                ("clear-site-data", "*"),
                ("service-worker-allowed", "/"),
            ]);
            back(&mut answer, false);
            let kind = format!("content-type: {page}");
            let want = ["content-security-policy: sandbox", &kind, "x-content-type-options: nosniff"];
            assert_eq!(lines(&answer), want);
        }
        let mut answer = headers(&[("content-type", "application/json"), ("content-type", "text/html")]);
        back(&mut answer, false);
        assert_eq!(lines(&answer), ["content-security-policy: sandbox", "x-content-type-options: nosniff"]);
    }
}
