//! Flags of the member's owner about who reaches it through the hub.

use std::path::PathBuf;

use karmada_client::Endpoint;
use karmada_member::tunnel::{Guests, Limits, Mode, Pattern};

use crate::tunnel::{Server, Settings};

/// See the module.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Reaching the member through the hub")]
pub(super) struct TunnelFlags {
    /// What users of the hub may do on the member: nothing (off), read objects and logs (read-only), or whatever the
    /// member's RBAC allows them (full). The agent dials a connection for this when a user sends a request. The
    /// Cluster's annotation cluster.karmada.io/tunnel can restrict this further, but not extend it. Needs
    /// manifests/agent/tunnel.yaml.
    #[arg(long, value_name = "HOW", default_value = "off")]
    tunnel: Mode,
    /// Allow only these kinds, such as pods, pods/log, deployments.apps, *.apps. Without it: all kinds.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    tunnel_allow: Vec<Pattern>,
    /// Never allow these kinds, whatever other flags allow.
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    tunnel_deny: Vec<Pattern>,
    /// Allow only these namespaces, and nothing at cluster scope. Without it: the namespaces of --namespaces.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tunnel_namespaces: Vec<String>,
    /// Let administrators of the hub (group system:masters) do everything that --tunnel allows.
    #[arg(long)]
    tunnel_masters: bool,
    /// Let in these users although their names begin with system:. No flag lets in ServiceAccounts of the hub.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tunnel_users: Vec<String>,
    /// Let in members of these groups although the names of the groups begin with system:, or are
    /// kubeadm:cluster-admins.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tunnel_groups: Vec<String>,
    /// Send the hub copies of the kinds that its ResourceRegistries name, so that searches answer at once and also while this
    /// member cannot be reached. Only administrators of the hub see them, so this needs --tunnel-masters. --tunnel-allow,
    /// --tunnel-deny and --tunnel-namespaces hold for copies as well. Secrets are never copied.
    #[arg(long)]
    tunnel_copies: bool,
    /// Dial tunnels to this address of the hub, https://HOST:PORT. Needed where the hub's API is a stock kube-apiserver: name the
    /// hub's own port there, of each hub if there are several (at most 16). The agent dials all of them at once, and the hub that
    /// leads lets it in. It shows its certificate or token for the API there. Without this flag: the address in the kubeconfig for
    /// the hub.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    tunnel_server: Vec<String>,
    /// File with the CA certificates (PEM) to believe at --tunnel-server. Without it: those of the machine.
    #[arg(long, value_name = "FILE", requires = "tunnel_server")]
    tunnel_ca: Option<PathBuf>,
    /// How many bytes may cross tunnels in an hour, in both directions together, such as 4Mi. Each user has at most half of that. When
    /// a user's half is used up, the agent answers this user's requests with 429 until there are some again; what has begun goes on
    /// until as much again is used. 0: no limit. Without it: 16 times --link-budget, or what --link sets for that, and no limit where
    /// reports have none.
    #[arg(long, value_name = "BYTES", value_parser = super::link::bytes)]
    tunnel_budget: Option<u64>,
}

impl TunnelFlags {
    /// What they say together; nothing where there is to be no tunnel.
    pub(super) fn check(self, namespaces: &[String]) -> Result<Option<Settings>, String> {
        let bounded = [
            ("--tunnel-allow", !self.tunnel_allow.is_empty()),
            ("--tunnel-deny", !self.tunnel_deny.is_empty()),
            ("--tunnel-namespaces", !self.tunnel_namespaces.is_empty()),
            ("--tunnel-masters", self.tunnel_masters),
            ("--tunnel-users", !self.tunnel_users.is_empty()),
            ("--tunnel-groups", !self.tunnel_groups.is_empty()),
            ("--tunnel-copies", self.tunnel_copies),
            ("--tunnel-server", !self.tunnel_server.is_empty()),
            ("--tunnel-budget", self.tunnel_budget.is_some()),
        ];
        if self.tunnel == Mode::Off {
            return match bounded.iter().find(|(_, given)| *given) {
                Some((flag, _)) => Err(format!("{flag} wants --tunnel=read-only or --tunnel=full")),
                None => Ok(None),
            };
        }
        let namespaces = match self.tunnel_namespaces.is_empty() {
            true => namespaces.to_vec(),
            false => self.tunnel_namespaces,
        };
        let limits =
            Limits { mode: self.tunnel, allow: self.tunnel_allow, deny: self.tunnel_deny, namespaces };
        let guests =
            Guests { masters: self.tunnel_masters, users: self.tunnel_users, groups: self.tunnel_groups };
        if self.tunnel_copies && !guests.masters {
            return Err(
                "--tunnel-copies wants --tunnel-masters: administrators of the hub see the copies".to_owned()
            );
        }
        let server = match self.tunnel_server.is_empty() {
            true => None,
            false => {
                let server = Server { addresses: self.tunnel_server, ca: self.tunnel_ca };
                // What cannot be used is told at once.
                let nobody = Endpoint::of_server("http://localhost", None, false, None)?;
                server.ways(&nobody).map_err(|why| format!("--tunnel-server: {why}"))?;
                Some(server)
            }
        };
        Ok(Some(Settings { limits, guests, copies: self.tunnel_copies, server, budget: self.tunnel_budget }))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use karmada_apiserver::pki::Pki;
    use karmada_env::Env;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        flags: TunnelFlags,
    }

    fn check(line: &str, namespaces: &[&str]) -> Result<Option<Settings>, String> {
        let words = std::iter::once("karmada-agent").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let namespaces: Vec<String> = namespaces.iter().map(|&name| name.to_owned()).collect();
        line.flags.check(&namespaces)
    }

    #[test]
    fn there_is_none_unless_the_owner_says_so() {
        assert_eq!(check("", &["shop"]), Ok(None));
        assert_eq!(check("--tunnel=off", &[]), Ok(None));
        for (line, wrong) in [
            ("--tunnel=Full", "read-only"),
            ("--tunnel-deny=secrets", "--tunnel-deny wants"),
            ("--tunnel-masters", "--tunnel-masters wants"),
            ("--tunnel-copies", "--tunnel-copies wants"),
            ("--tunnel=full --tunnel-copies", "wants --tunnel-masters"),
            ("--tunnel-users=system:x", "--tunnel-users wants"),
            ("--tunnel-server=https://hub:6443", "--tunnel-server wants"),
            ("--tunnel-budget=4Mi", "--tunnel-budget wants"),
            ("--tunnel=full --tunnel-budget=much", "--tunnel-budget"),
            ("--tunnel=full --tunnel-server=http://hub:6443", "by https alone"),
            ("--tunnel=full --tunnel-server=https://hub --tunnel-ca=/nowhere", "/nowhere"),
            ("--tunnel=full --tunnel-ca=/nowhere", "--tunnel-server"),
            ("--tunnel=full --tunnel-allow=Pods", "names no kind"),
        ] {
            assert!(check(line, &[]).unwrap_err().contains(wrong), "{line}");
        }
    }

    #[test]
    fn what_it_says_is_the_limit() {
        let all =
            check("--tunnel full --tunnel-allow pods,pods/log --tunnel-deny secrets --tunnel-masters", &[]);
        let all = all.unwrap().unwrap();
        assert_eq!((all.limits.mode, all.limits.allow.len(), all.guests.masters), (Mode::Full, 2, true));
        let names = |line: &str| check(line, &["shop"]).unwrap().unwrap().limits.namespaces;
        let guests = "--tunnel=full --tunnel-users=system:a,b --tunnel-groups=system:monitoring";
        let guests = check(guests, &[]).unwrap().unwrap().guests;
        assert_eq!((guests.users.len(), guests.groups.len(), guests.masters), (2, 1, false));
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::open_or_create(dir.path(), &[], &Env::system()).unwrap();
        let ca = dir.path().join("believed.crt");
        std::fs::write(&ca, pki.ca_pem()).unwrap();
        let server = format!(
            "--tunnel=full --tunnel-server=https://a:6443,https://b:6443 --tunnel-ca={}",
            ca.display()
        );
        let server = check(&server, &[]).unwrap().unwrap().server.unwrap();
        assert_eq!(server.ca, Some(ca));
        assert_eq!(server.addresses, ["https://a:6443", "https://b:6443"]);
        let budget = |line: &str| check(line, &[]).unwrap().unwrap().budget;
        assert_eq!(budget("--tunnel=full"), None);
        assert_eq!(budget("--tunnel=full --tunnel-budget=0"), Some(0));
        assert_eq!(budget("--tunnel=full --tunnel-budget=8Mi"), Some(8 << 20));
        let copies = |line: &str| check(line, &[]).unwrap().unwrap().copies;
        assert!(copies("--tunnel=read-only --tunnel-masters --tunnel-copies"));
        assert!(
            !copies("--tunnel=full --tunnel-masters"),
            "whoever lets administrators in has said nothing of copies"
        );
        assert_eq!(names("--tunnel=read-only"), ["shop"]);
        assert_eq!(names("--tunnel=read-only --tunnel-namespaces=a,b"), ["a", "b"]);
    }
}
