//! In whose name a request is made on the member.

use super::Refusal;

/// Whoever is in this group may do everything, whatever RBAC says.
const MASTERS: &str = "system:masters";
/// What every user has; a member gives them itself.
const EVERYBODYS: [&str; 2] = ["system:authenticated", "system:unauthenticated"];
/// Names that Kubernetes gives a meaning of its own: on the member they are others than on the hub.
const RESERVED: &str = "system:";
/// Groups with rights that some installers bind.
const POWERFUL: [&str; 1] = ["kubeadm:cluster-admins"];
/// Accounts of the hub's, and their groups. Who may make some there would be whom they like on the member, where others have the
/// same names.
const ACCOUNTS: [&str; 2] = ["system:serviceaccount:", "system:serviceaccounts"];
/// As many groups as a request may bring.
const GROUPS: usize = 256;

/// A user of the hub, as the member is to see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// Name.
    pub user: String,
    /// Groups, without those that everybody has.
    pub groups: Vec<String>,
}

/// Whom the member's owner lets users of the hub be, beside people and groups of people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guests {
    /// Whether the group system:masters may be used.
    pub masters: bool,
    /// These users whose names are reserved.
    pub users: Vec<String>,
    /// These groups whose names are, or that may do much by other means.
    pub groups: Vec<String>,
}

impl Guests {
    /// Whether a reserved name may be used.
    fn admit(&self, what: &str, name: &str) -> Result<(), String> {
        if ACCOUNTS.iter().any(|account| name.starts_with(account)) {
            return Err(format!(
                "the {what} {name:?} is of the hub's ServiceAccounts, which are nobody here: others have these names"
            ));
        }
        let (listed, flag) = match what {
            "user" => (&self.users, "--tunnel-users"),
            _ => (&self.groups, "--tunnel-groups"),
        };
        let reserved = name.starts_with(RESERVED) || POWERFUL.contains(&name);
        if !reserved || EVERYBODYS.contains(&name) || listed.iter().any(|one| one == name) {
            return Ok(());
        }
        Err(format!(
            "the {what} {name:?} has a meaning of its own on the member, and its owner has not let it in: start the agent \
             with {flag}"
        ))
    }
}

impl Who {
    /// From the names and the groups that the hub has sent. `own`: the agent's own accounts on the member, in whose
    /// names nobody else acts who may not do everything anyway.
    ///
    /// # Errors
    /// Where that is not one user, or one that the member is not to see.
    pub fn of(users: &[&str], groups: &[&str], own: &[&str], guests: &Guests) -> Result<Self, Refusal> {
        let [user] = users else {
            return Err(Refusal::Unclear(format!(
                "a request has one user, and this one has {}",
                users.len()
            )));
        };
        if groups.len() > GROUPS {
            return Err(Refusal::Unclear(format!("the user {user:?} has more than {GROUPS} groups")));
        }
        for (what, name) in [("user", user)].into_iter().chain(groups.iter().map(|group| ("group", group))) {
            // Space at an end is no part of a header's value: the member would read another name than was judged.
            if name.is_empty() || name.trim() != *name || name.chars().any(char::is_control) {
                return Err(Refusal::Unclear(format!("the {what} {name:?} cannot be sent in a header")));
            }
        }
        let may_all = groups.contains(&MASTERS);
        if may_all && !guests.masters {
            return Err(Refusal::Forbidden(format!(
                "the member's owner lets nobody act as {MASTERS}, and {user:?} is in that group: bind the user to roles on \
                 the member, or start the agent with --tunnel-masters"
            )));
        }
        // Whoever may do everything anyway gains nothing by it.
        if !may_all {
            if own.contains(user) {
                return Err(Refusal::Forbidden(format!(
                    "{user:?} is an account of the agent's own on this member, in whose name nobody else acts"
                )));
            }
            guests.admit("user", user).map_err(Refusal::Forbidden)?;
            for group in groups {
                guests.admit("group", group).map_err(Refusal::Forbidden)?;
            }
        }
        let groups = groups.iter().filter(|group| !EVERYBODYS.contains(group));
        Ok(Self { user: (*user).to_owned(), groups: groups.map(|group| (*group).to_owned()).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "system:serviceaccount:karmada-system:karmada-agent";

    #[test]
    fn one_user_with_names_that_can_be_sent() {
        for (users, groups, want) in [
            (vec!["jane"], vec!["dev", "system:authenticated"], Ok(vec!["dev"])),
            (vec!["jane"], vec![], Ok(vec![])),
            (vec![], vec!["dev"], Err(400)),
            (vec!["jane", "joe"], vec![], Err(400)),
            (vec![""], vec![], Err(400)),
            (vec!["jane "], vec![], Err(400)),
            (vec!["jane"], vec!["\tdev"], Err(400)),
            (vec!["jane"], vec!["system:masters "], Err(400)),
            (vec!["ja\r\nne"], vec![], Err(400)),
            (vec!["jane"], vec!["dev", "system:masters"], Err(403)),
            (vec![OWN], vec![], Err(403)),
            (vec!["jane"], vec!["dev"; GROUPS + 1], Err(400)),
        ] {
            let who = Who::of(&users, &groups, &[OWN], &Guests::default()).map(|who| who.groups);
            let want = want.map(|groups| groups.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(who.map_err(|refusal| refusal.code()), want, "{users:?} {groups:?}");
        }
    }

    #[test]
    fn masters_only_where_the_owner_says_so() {
        let (nobody, masters) = (Guests::default(), Guests { masters: true, ..Guests::default() });
        let who = Who::of(&["system:admin"], &["system:masters"], &[OWN], &masters).unwrap();
        assert_eq!((who.user.as_str(), who.groups), ("system:admin", vec!["system:masters".to_owned()]));
        assert_eq!(Who::of(&[OWN], &["dev"], &[OWN], &masters).unwrap_err().code(), 403);
        assert!(
            Who::of(&[OWN], &["system:masters"], &[OWN], &masters).is_ok(),
            "nothing is gained by the name"
        );
        assert_eq!(Who::of(&[OWN], &["system:masters"], &[OWN], &nobody).unwrap_err().code(), 403);
    }

    #[test]
    fn names_of_kubernetes_own_are_nobodys_unless_the_owner_lists_them() {
        let listed = Guests {
            masters: false,
            users: vec!["system:kube-controller-manager".into(), "system:serviceaccount:a:b".into()],
            groups: vec!["system:monitoring".into(), "kubeadm:cluster-admins".into()],
        };
        let aggregation = "system:serviceaccount:kube-system:clusterrole-aggregation-controller";
        for (user, groups, by_default, by_list) in [
            ("jane", &["dev", "system:authenticated"][..], true, true),
            ("system", &["systems:x"], true, true),
            ("system:kube-controller-manager", &[], false, true),
            ("system:kube-scheduler", &[], false, false),
            ("system:anonymous", &["system:unauthenticated"], false, false),
            (aggregation, &["system:serviceaccounts"], false, false),
            ("system:serviceaccount:a:b", &[], false, false),
            ("jane", &["system:serviceaccounts:monitoring"], false, false),
            ("jane", &["system:nodes"], false, false),
            ("jane", &["dev", "system:monitoring"], false, true),
            ("jane", &["kubeadm:cluster-admins"], false, true),
        ] {
            for (guests, want) in [(&Guests::default(), by_default), (&listed, by_list)] {
                let who = Who::of(&[user], groups, &[OWN], guests);
                assert_eq!(who.is_ok(), want, "{user} {groups:?} {guests:?}");
                assert!(who.is_ok_and(|who| who.user == user) || !want);
            }
        }
    }
}
