//! Users' own rules for what the fields of a kind mean: which there are, whom they concern when they change, and how they
//! are asked.

pub(crate) mod customizations;
pub(crate) mod hooks;

use std::{fmt, sync::Arc};

use karmada_client::Rest;
use karmada_env::Env;
use karmada_interpreter::{Interpreter, Unreachable};
use kube::Client;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    customizations::{Customization, RuleChanges},
    hooks::{Configuration, HubCaller},
};
use crate::known::{Known, index::Index};

/// Users' rules, and the interpreter that goes by them.
pub(crate) struct UserRules {
    pub(crate) known: Arc<Known>,
    /// Scripts.
    pub(crate) customizations: Arc<Index<Customization>>,
    /// Services beside them.
    pub(crate) webhooks: Arc<Index<Configuration>>,
    /// Asks them.
    pub(crate) caller: Arc<HubCaller>,
    /// What the fields of a kind mean.
    pub(crate) interpreter: Interpreter,
    /// Tells of which kinds the rules have changed.
    pub(crate) changes: RuleChanges,
    env: Env,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl fmt::Debug for UserRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserRules").finish_non_exhaustive()
    }
}

impl UserRules {
    /// No rules yet; services are found by `client`, and asked until `stop`.
    pub(crate) fn new(
        client: &Client,
        known: Arc<Known>,
        env: Env,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let caller = Arc::new(HubCaller::new(Rest::new(client.clone()), &env));
        Self {
            known,
            customizations: Index::new(),
            webhooks: Index::new(),
            interpreter: Interpreter::new(env.clone()).with_caller(caller.clone(), Unreachable::Fails),
            caller,
            changes: RuleChanges::default(),
            env,
            tasks: tasks.clone(),
            stop: stop.clone(),
        }
    }
}
