//! `karmada-hub token`: bootstrap tokens, each for one cluster, and the line by which it joins.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use karmada_apiserver::{
    authn::{
        CLUSTER_INFO,
        bootstrap::{NAMESPACE, PREFIX, TYPE},
    },
    certificates::{CLUSTER, CLUSTER_GROUP, USES_LEFT},
    pki::ca_cert_hash,
};
use karmada_client::Error;
use karmada_env::{Env, Secret};
use karmada_meta::{duration, names::joining_name_errors, object, time::Time};
use serde_json::{Value, json};

use super::{
    Failure, agents,
    args::{TokenArgs, TokenCommand, TokenCreateArgs, TokenDeleteArgs, TokenListArgs},
    ask::Server,
    print, revoke,
};

/// Characters of a token's two parts.
const ID: usize = 6;
const SECRET: usize = 16;
/// How often it is looked whether a hub has published where it is, and how long after each other.
const LOOKS: u32 = 50;
const LOOK: Duration = Duration::from_millis(100);
/// What tokens are made of.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Does what is asked of tokens.
pub(super) async fn run(args: TokenArgs, env: Env) -> Result<(), Failure> {
    match args.command {
        TokenCommand::Create(args) => create(args, env).await,
        TokenCommand::List(args) => list(args, env).await,
        TokenCommand::Delete(args) => delete(args, env).await,
    }
}

async fn create(args: TokenCreateArgs, env: Env) -> Result<(), Failure> {
    if let Some(why) = joining_name_errors(&args.cluster).first() {
        return Err(Failure::usage(format!("--cluster {:?}: {why}", args.cluster)));
    }
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let rest = server.objects.rest();
    // Before anything is made: a token that nobody can use is only a danger.
    let (host, hash) = whereabouts(&server).await?;
    // What was given for this name before is not to count for whoever joins by it now.
    match revoke::is_elsewhere(&server).await {
        Ok(true) => end_elsewhere(&server, &args.cluster, &env).await?,
        Ok(false) => end_before(&server, &args.cluster, &env).await?,
        // Who may make tokens need not be one who may look at checks; elsewhere there is no record.
        Err(error) if error.is_forbidden() => end_before(&server, &args.cluster, &env).await?,
        Err(error) => return Err(server.failure(&error)),
    }
    let (id, secret) = fresh();
    let until = Time::from_system(env.wall() + args.ttl);
    let made = rest.post(&collection(), &body(&args, &id, &secret, &until.to_string())).await;
    made.map_err(|error| server.failure(&error))?;
    eprintln!(
        "a token for cluster {}, valid for {} until {until}. Run one of these at the member:",
        args.cluster,
        uses(args.uses)
    );
    let token = format!("{id}.{secret}");
    if args.told.is_json() {
        let made = json!({
            "cluster": args.cluster, "token": token, "hub": host, "caCertHash": hash, "until": until.to_string(),
            "uses": args.uses,
        });
        return args.told.say("", &made);
    }
    print(&lines(&host, &token, &hash, &args.cluster))
}

/// Ends what was given by a name by which no agent has registered.
async fn end_before(server: &Server, cluster: &str, env: &Env) -> Result<(), Failure> {
    let rest = server.objects.rest();
    let (record, _) = revoke::read_record(rest, cluster).await.map_err(|error| server.failure(&error))?;
    if !record.is_issued() || record.is_issued_by_people() {
        return Ok(());
    }
    if !revoke::is_registered(rest, cluster).await.map_err(|error| server.failure(&error))? {
        revoke::end(rest, cluster, env).await.map_err(|error| server.failure(&error))?;
        eprintln!(
            "note: a certificate was issued for {cluster} before, and no agent has registered with it; it is now revoked"
        );
    }
    Ok(())
}

/// The same on an API server that is not the hub's own, as far as it can be ended there.
async fn end_elsewhere(server: &Server, cluster: &str, env: &Env) -> Result<(), Failure> {
    // Who may make tokens need not be one who may read and write roles. The hub looks, too, when an agent joins by this one.
    let unless_forbidden = |error: Error| match error.is_forbidden() {
        true => {
            eprintln!("note: the hub itself will revoke what was issued for {cluster} before: {error}");
            Ok(())
        }
        false => Err(server.failure(&error)),
    };
    let seen = match agents::look(&server.objects, cluster).await {
        Err(error) => return unless_forbidden(error),
        Ok(seen) => seen,
    };
    let is_nobodys = match revoke::is_registered(server.objects.rest(), cluster).await {
        Err(error) => return unless_forbidden(error),
        Ok(registered) => seen.is_given() && !registered,
    };
    if is_nobodys {
        if let Err(error) = agents::revoke(&server.objects, cluster, env.wall()).await {
            return unless_forbidden(error);
        }
        eprintln!(
            "note: a certificate was issued for {cluster} before, and no agent has registered with it; its rights are now removed"
        );
    }
    let counts = seen.is_given() && !is_nobodys;
    if !counts && seen.until().is_some_and(|until| until > Time::from_system(env.wall())) {
        eprintln!(
            "note: this server cannot revoke certificates that were issued for {cluster} before. Once an agent joins with this token, \
             the old one gives access to the same objects {}. If others may have it, choose another name",
            revoke::until(&seen)
        );
    }
    Ok(())
}

fn uses(count: u32) -> String {
    if count == 1 { "one agent".to_owned() } else { format!("{count} agents") }
}

/// What is run at the member: with kubectl, or with nothing but the agent.
fn lines(host: &str, token: &str, hash: &str, cluster: &str) -> String {
    let by = format!("--hub {host} --token {token} --ca-cert-hash {hash} --cluster-name {cluster}");
    format!("scripts/deploy-agent.sh {by}\nkarmada-agent join {by}\n")
}

/// The Secret of a token.
fn body(args: &TokenCreateArgs, id: &str, secret: &str, until: &str) -> Value {
    let cluster = &args.cluster;
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": TYPE,
        "metadata": {
            "name": format!("{PREFIX}{id}"), "namespace": NAMESPACE,
            "annotations": {CLUSTER: cluster, USES_LEFT: args.uses.to_string()},
        },
        "stringData": {
            "token-id": id, "token-secret": secret, "expiration": until,
            "description": format!("For the agent of cluster {cluster}"),
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": format!("{CLUSTER_GROUP}{cluster}"),
        },
    })
}

/// Where machines find the hub, and the digest of its authority's key.
async fn whereabouts(server: &Server) -> Result<(String, String), Failure> {
    let path = format!("/api/v1/namespaces/{}/configmaps/{}", CLUSTER_INFO.namespace, CLUSTER_INFO.name);
    let mut looks = 0;
    let info = match loop {
        let answer = server.objects.rest().get(&path).await;
        looks += 1;
        // A hub that has just started publishes it in a moment.
        match answer {
            Err(error) if error.is_not_found() && looks < LOOKS => tokio::time::sleep(LOOK).await,
            answer => break answer,
        }
    } {
        Ok(info) => info,
        Err(error) if error.is_not_found() => {
            return Err(Failure::failed(format!(
                "the server has no ConfigMap {}/{}, by which a machine finds it: is it a hub with an API of its own? On \
                 another API server it is made with manifests/hub/join-rbac.yaml",
                CLUSTER_INFO.namespace, CLUSTER_INFO.name
            )));
        }
        Err(error) => return Err(server.failure(&error)),
    };
    let broken = |why: String| {
        Failure::failed(format!("ConfigMap {}/{}: {why}", CLUSTER_INFO.namespace, CLUSTER_INFO.name))
    };
    let text = info["data"]["kubeconfig"].as_str().unwrap_or_default();
    let config: Value = serde_saphyr::from_str(text).map_err(|error| broken(error.to_string()))?;
    let cluster = &config["clusters"][0]["cluster"];
    let field =
        |name: &str| cluster[name].as_str().ok_or_else(|| broken(format!("data.kubeconfig has no {name}")));
    let url: http::Uri = field("server")?.parse().map_err(|error| broken(format!("its server: {error}")))?;
    let host = url.host().ok_or_else(|| broken("its server has no host".to_owned()))?;
    let host = format!("{host}:{}", url.port_u16().unwrap_or(443));
    let pem = STANDARD
        .decode(field("certificate-authority-data")?)
        .map_err(|error| broken(format!("its authority: {error}")))?;
    let hash = ca_cert_hash(&pem).map_err(|why| broken(format!("its authority: {why}")))?;
    Ok((host, hash))
}

/// A new token. Each part comes from secrets of the operating system, 256 bits each.
fn fresh() -> (String, String) {
    (part(ID), part(SECRET))
}

fn part(length: usize) -> String {
    let mut made = String::with_capacity(length);
    while made.len() < length {
        let secret = Secret::new();
        let bytes = secret
            .expose()
            .as_bytes()
            .chunks_exact(2)
            .filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        // Each character is as likely as any other: what is beyond the last whole alphabet is left out.
        let letters =
            bytes.filter(|byte| *byte < 252).map(|byte| ALPHABET[usize::from(byte) % ALPHABET.len()]);
        made.extend(letters.take(length - made.len()).map(char::from));
    }
    made
}

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/secrets")
}

async fn list(args: TokenListArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let path = format!("{}?fieldSelector=type%3D{}", collection(), TYPE.replace('/', "%2F"));
    let all = server.objects.rest().get(&path).await.map_err(|error| server.failure(&error))?;
    let secrets = all["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !args.told.is_json() {
        return print(&table(secrets, &env));
    }
    let [_, rows @ ..] = &rows(secrets, &env)[..] else { return Ok(()) };
    rows.iter().try_for_each(|[token, cluster, uses, left]| {
        args.told.say("", &json!({"token": token, "cluster": cluster, "usesLeft": uses, "ttl": left}))
    })
}

/// A row for each token, without its secret, below one of headings.
fn rows(secrets: &[Value], env: &Env) -> Vec<[String; 4]> {
    let mut rows = vec![["TOKEN", "CLUSTER", "USES LEFT", "TTL"].map(str::to_owned)];
    rows.extend(secrets.iter().map(|secret| {
        let text = |field: &str| {
            let bytes = STANDARD.decode(secret["data"][field].as_str().unwrap_or_default());
            String::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
        };
        let groups = text("auth-extra-groups");
        let by_group = groups.split(',').find_map(|group| group.strip_prefix(CLUSTER_GROUP));
        let cluster = object::annotation(secret, CLUSTER).or(by_group).unwrap_or("<none>");
        let left = match text("expiration").parse::<Time>() {
            Err(_) => "<forever>".to_owned(),
            Ok(until) => {
                std::time::SystemTime::from(until.timestamp()).duration_since(env.wall()).map_or_else(
                    |_| "<ended>".to_owned(),
                    |left| duration::format(Duration::from_secs(left.as_secs())),
                )
            }
        };
        let uses = object::annotation(secret, USES_LEFT).unwrap_or("<any>");
        [object::name(secret).strip_prefix(PREFIX).unwrap_or_default(), cluster, uses, &left]
            .map(str::to_owned)
    }));
    rows
}

/// The same in columns.
fn table(secrets: &[Value], env: &Env) -> String {
    let rows = rows(secrets, env);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let line = |[token, cluster, uses, left]: &[String; 4]| {
        let [a, b, c] = widths;
        format!("{token:a$}   {cluster:b$}   {uses:c$}   {left}\n")
    };
    rows.iter().map(line).collect()
}

async fn delete(args: TokenDeleteArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    for token in &args.tokens {
        // Whoever has the whole token at hand need not cut it.
        let id = token.split('.').next().unwrap_or_default();
        let well = id.len() == ID && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if !well {
            return Err(Failure::usage("a token's id has six characters of a-z and 0-9".to_owned()));
        }
        let path = format!("{}/{PREFIX}{id}", collection());
        match server.objects.rest().delete(&path, &json!({})).await {
            Ok(_) => {
                let line = format!("bootstrap token {id} deleted");
                args.told.say(&line, &json!({"token": id, "result": "deleted"}))?;
            }
            Err(error) if Error::is_not_found(&error) => {
                return Err(Failure::failed(format!("there is no bootstrap token {id}")));
            }
            Err(error) => return Err(server.failure(&error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use clap::Parser;
    use karmada_apiserver::authn::bootstrap;
    use karmada_env::ManualClock;

    use super::{
        super::args::{Args, Command},
        *,
    };

    #[test]
    fn tokens_have_their_form_and_are_never_the_same() {
        let (id, secret) = fresh();
        assert!(bootstrap::parse(&format!("{id}.{secret}")).is_some(), "{id}");
        assert_ne!(part(SECRET), part(SECRET));
    }

    #[test]
    fn a_token_is_made_for_one_cluster_and_one_use() {
        let words = ["karmada-hub", "token", "create", "--cluster=m1"];
        let Ok(Command::Token(args)) = Args::try_parse_from(words).map(|args| args.command) else { panic!() };
        let TokenCommand::Create(args) = args.command else { panic!() };
        assert_eq!((args.ttl, args.uses), (Duration::from_secs(24 * 3600), 1));
        let secret = body(&args, "abcdef", "0123456789abcdef", "2026-01-01T00:00:00Z");
        assert_eq!(object::annotation(&secret, CLUSTER), Some("m1"));
        assert_eq!(object::annotation(&secret, USES_LEFT), Some("1"));
        assert!(bootstrap::is_group(secret["stringData"]["auth-extra-groups"].as_str().unwrap()));
        for wrong in ["--ttl=0s", "--uses=0"] {
            let words = ["karmada-hub", "token", "create", "--cluster=m1", wrong];
            assert!(Args::try_parse_from(words).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_listed_without_their_secrets() {
        let env = Env::seeded(ManualClock::new(SystemTime::UNIX_EPOCH), 0);
        let secret = |id: &str, groups: &str, until: &str, annotations: Value| {
            let encode = |text: &str| STANDARD.encode(text);
            json!({"metadata": {"name": format!("{PREFIX}{id}"), "annotations": annotations},
                "data": {"token-secret": encode("0123456789abcdef"), "auth-extra-groups": encode(groups), "expiration": encode(until)}})
        };
        let secrets = [
            secret("aaaaaa", "", "1970-01-01T01:00:00Z", json!({CLUSTER: "m1", USES_LEFT: "1"})),
            secret("bbbbbb", "system:bootstrappers:hub:shop-17", "", json!({})),
            secret("cccccc", "", "1969-01-01T01:00:00Z", json!({})),
        ];
        let want = "\
TOKEN    CLUSTER   USES LEFT   TTL
aaaaaa   m1        1           1h0m0s
bbbbbb   shop-17   <any>       <forever>
cccccc   <none>    <any>       <ended>
";
        assert_eq!(table(&secrets, &env), want);
    }
}
