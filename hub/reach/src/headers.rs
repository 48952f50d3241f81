//! What of a request's headers goes on to a member, and what of its answer comes back.
//!
//! A client may not say in whose name the member is to act. Everything that could is removed first, with whatever
//! `Connection` names, since HTTP/2 and proxies drop what is named there; then the identity is set.

use http::{HeaderMap, HeaderName, HeaderValue, header};
use karmada_apiserver::authn::UserInfo;

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
const OURS: [&str; 6] = ["authorization", "cookie", "expect", "host", "audit-id", "forwarded"];
const OURS_BEGIN: [&str; 4] = ["impersonate-", "x-remote-", "x-forwarded-", "karmada-"];
/// A token in the list of subprotocols, as kubectl's web clients send it.
const BEARER: &str = "base64url.bearer.authorization.k8s.io.";
/// What every user has; a member gives them itself.
const EVERYBODYS: [&str; 2] = ["system:authenticated", "system:unauthenticated"];

/// The protocol that a client wants the connection to change to.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let wants = named(headers).any(|name| name.eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| wants).cloned()
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
    let value = |what: &str, text: &str| {
        let made = HeaderValue::from_bytes(text.as_bytes());
        made.map_err(|_| format!("the {what} {text:?} cannot be sent in a header"))
    };
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
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
    // Who asks is asked by the hub, not by the member.
    headers.remove(header::WWW_AUTHENTICATE);
    headers.remove(header::SET_COOKIE);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, protocol);
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
        ]);
        assert_eq!(lines(&forward(&sent, &user(), "t", "id-1").unwrap()), IDENTITY);
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
        let error = forward(&HeaderMap::new(), &UserInfo::new("a\nb", [""; 0]), "t", "id").unwrap_err();
        assert!(error.contains("cannot be sent"), "{error}");
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
            (true, vec!["connection: Upgrade", "sec-websocket-accept: s", "upgrade: websocket"]),
            (false, vec!["sec-websocket-accept: s"]),
        ] {
            let mut answer = headers(&answer);
            back(&mut answer, upgraded);
            assert_eq!(lines(&answer), want);
        }
    }
}
