//! `karmada-hub explain`: why an object is where it is, and is not where it is not.
//!
//! ```text
//!   what was named ─▶ target ─▶ facts from the API ─▶ karmada_core::{select, place}, which decide ─▶ report ─▶ text, JSON
//! ```
//!
//! Nothing here has an opinion of its own: the functions that claim and place are asked again, with what the hub knows.

mod policy;
mod report;
mod target;
mod template;

use karmada_env::Env;
use karmada_objects::discovery;
use serde_json::{Value, json};

pub(super) use self::report::places;
use self::{report::Report, target::Target};
use super::{
    Failure,
    args::{Document, ExplainArgs, ServerArgs},
    ask::Server,
    known, print,
};

/// Why a template is where it is, as a document: of the template of this kind and name, or of what is left of it.
pub(super) async fn document(server: &Server, kind: &str, name: &str) -> Result<Value, Failure> {
    let all = discovery::everything(server.objects.rest()).await.map_err(|e| server.failure(&e))?;
    let args = ExplainArgs {
        target: kind.to_owned(),
        name: Some(name.to_owned()),
        resource: None,
        output: Document::Json,
        server: ServerArgs::default(),
    };
    let clusters = known::clusters(server).await?;
    let mut reports = Vec::new();
    for target in target::find(server, &all, &args).await? {
        reports.push(match target {
            Target::Template(object) => json!(template::report(server, &object, &clusters).await?),
            Target::Orphan(bound) => json!(template::orphan(server, *bound, &clusters).await?),
            Target::Policy(head) => json!(policy::report(server, &all, &head, &clusters).await?),
        });
    }
    Ok(reports.into_iter().next().unwrap_or_default())
}

/// Prints why.
pub(super) async fn run(args: ExplainArgs, env: Env) -> Result<(), Failure> {
    let server = Server::open(&args.server, &env)?;
    server.reach().await?;
    let all = discovery::everything(server.objects.rest()).await.map_err(|e| server.failure(&e))?;
    let targets = target::find(&server, &all, &args).await?;
    let clusters = known::clusters(&server).await?;
    let mut reports = Vec::new();
    for target in targets {
        let report = match target {
            Target::Template(object) => {
                Report::Template(Box::new(template::report(&server, &object, &clusters).await?))
            }
            Target::Orphan(bound) => {
                Report::Template(Box::new(template::orphan(&server, *bound, &clusters).await?))
            }
            Target::Policy(head) => {
                Report::Policy(Box::new(policy::report(&server, &all, &head, &clusters).await?))
            }
        };
        reports.push(report);
    }
    match args.output {
        Document::Text => {
            let texts: Vec<_> = reports.iter().map(|report| report.text(env.wall())).collect();
            print(&texts.join("\n"))
        }
        Document::Json => {
            let mut documents: Vec<Value> = reports.iter().map(|report| json!(report)).collect();
            let document = if documents.len() == 1 { documents.remove(0) } else { json!(documents) };
            print(&format!("{}\n", serde_json::to_string_pretty(&document).map_err(Failure::failed)?))
        }
    }
}
