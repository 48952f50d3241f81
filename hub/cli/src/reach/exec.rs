//! `karmada-hub exec`.

use std::{pin::pin, time::Duration};

use futures::SinkExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use karmada_env::Env;
use kube::api::{AttachParams, TerminalSize};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, stderr, stdin, stdout},
    signal::unix::{SignalKind, signal},
    time::timeout,
};

use super::{Member, terminal};
use crate::{Failure, args::ExecArgs};

/// What may wait on its way in each direction.
const BUFFER: usize = 32 << 10;
/// For what has come over a connection that has broken off.
const LAST: Duration = Duration::from_secs(1);

/// How a command has ended.
fn end_of(status: Option<Status>) -> Result<(), Failure> {
    let Some(status) = status else { return Err(Failure::failed("the connection broke off")) };
    if status.status.as_deref() == Some("Success") {
        return Ok(());
    }
    let causes = status.details.and_then(|details| details.causes).unwrap_or_default();
    let code = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"));
    let code = code.and_then(|cause| cause.message.as_deref()?.parse::<u8>().ok());
    Err(match code.filter(|_| status.reason.as_deref() == Some("NonZeroExitCode")) {
        Some(code) => Failure::Ended(code),
        None => Failure::failed(status.message.unwrap_or_else(|| "the command failed".to_owned())),
    })
}

/// Runs a command in a container, until it has ended.
async fn session(member: &Member, args: &ExecArgs) -> Result<Option<Status>, Failure> {
    let params = AttachParams {
        container: args.container.clone(),
        stdin: args.stdin,
        stdout: true,
        // A terminal has one stream.
        stderr: !args.tty,
        tty: args.tty,
        max_stdin_buf_size: Some(BUFFER),
        max_stdout_buf_size: Some(BUFFER),
        max_stderr_buf_size: Some(BUFFER),
    };
    let what = format!("exec in {}/{}", member.namespace, args.pod);
    let attached = member.pods().exec(&args.pod, args.command.iter(), &params).await;
    let mut attached = attached.map_err(|error| member.failed(&what, &error))?;
    let raw = (args.tty && args.stdin).then(terminal::raw).transpose().map_err(Failure::failed)?.flatten();
    let sizes = attached.terminal_size();
    let resizing = tokio::spawn(async move {
        let (Some(mut to), Ok(mut changed)) = (sizes, signal(SignalKind::window_change())) else { return };
        loop {
            if let Some((width, height)) = terminal::size()
                && to.send(TerminalSize { width, height }).await.is_err()
            {
                return;
            }
            if changed.recv().await.is_none() {
                return;
            }
        }
    });
    if let Some(mut to) = attached.stdin() {
        // Nobody can stop a read of standard input: it ends with the program.
        tokio::spawn(async move {
            let _ = copy(&mut stdin(), &mut to).await;
            let _ = to.shutdown().await;
        });
    }
    let (out, err) = (attached.stdout(), attached.stderr());
    let status = attached.take_status();
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    let mut printing = pin!(async { tokio::join!(written(out, stdout()), written(err, stderr())) });
    let mut status = pin!(status);
    let status = tokio::select! {
        _ = &mut printing => status.await,
        status = &mut status => {
            // What was written before the end is printed before it. Of a connection that has broken off nobody says that it was
            // all.
            let last = if status.is_some() { Duration::MAX } else { LAST };
            let _ = timeout(last, printing).await;
            status
        }
    };
    resizing.abort();
    drop(raw);
    Ok(status)
}

async fn written(from: Option<impl AsyncRead + Unpin>, mut to: impl AsyncWrite + Unpin) {
    if let Some(mut from) = from {
        let _ = copy(&mut from, &mut to).await;
        let _ = to.flush().await;
    }
}

/// The command.
pub(crate) async fn run(args: ExecArgs, env: Env) -> Result<(), Failure> {
    let member = Member::open(&args.cluster, &args.server, &env).await?;
    let status = session(&member, &args).await?;
    end_of(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn how_commands_end() {
        let ended = |status: serde_json::Value| end_of(serde_json::from_value(status).unwrap());
        assert!(ended(json!({"status": "Success"})).is_ok());
        let seven = json!({"status": "Failure", "reason": "NonZeroExitCode",
                           "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}});
        assert!(matches!(ended(seven), Err(Failure::Ended(7))));
        let odd = json!({"status": "Failure", "reason": "InternalError", "message": "no such file"});
        assert!(matches!(ended(odd), Err(Failure::Failed(why)) if why == "no such file"));
        assert!(matches!(ended(json!(null)), Err(Failure::Failed(why)) if why.contains("broke off")));
    }
}
