//! `karmada-hub port-forward`.

use std::{net::Ipv4Addr, sync::Arc};

use futures::future::select_all;
use karmada_env::Env;
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    signal::ctrl_c,
    sync::Semaphore,
};

use super::Member;
use crate::{Failure, args::PortForwardArgs, told::one_line};

/// Connections at a time: what the hub gives one user to one cluster.
const MOST: usize = 64;

/// Listens until it is interrupted.
pub(crate) async fn run(args: PortForwardArgs, env: Env) -> Result<(), Failure> {
    let member = Arc::new(Member::open(&args.cluster, &args.server, &env).await?);
    let what = format!("port-forward to {}/{}", member.namespace, args.pod);
    // Before anybody connects it is known whether there is such a Pod.
    member.pods().get_metadata(&args.pod).await.map_err(|error| member.failed(&what, &error))?;
    let room = Arc::new(Semaphore::new(MOST));
    let mut listening = Vec::new();
    for (local, remote) in args.ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
        let listener = listener.map_err(|error| Failure::failed(format!("port {local}: {error}")))?;
        let address = listener.local_addr().map_err(Failure::failed)?;
        let value = json!({"address": address.to_string(), "pod": args.pod, "port": remote});
        args.told.say(&format!("Forwarding from {address} -> {remote}"), &value)?;
        let serving = serve(listener, member.clone(), args.pod.clone(), remote, room.clone());
        listening.push(Box::pin(serving));
    }
    tokio::select! {
        (failure, ..) = select_all(listening) => Err(failure),
        _ = ctrl_c() => Ok(()),
    }
}

/// Carries each connection by a session of its own.
async fn serve(
    listener: TcpListener,
    member: Arc<Member>,
    pod: String,
    port: u16,
    room: Arc<Semaphore>,
) -> Failure {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return Failure::failed("nothing is served any more");
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return Failure::failed(format!("no connection can be taken: {error}")),
        };
        let (member, pod) = (member.clone(), pod.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = carry(stream, &member, &pod, port).await {
                eprintln!("karmada-hub: port {port}: {}", one_line(&why));
            }
        });
    }
}

async fn carry(mut stream: TcpStream, member: &Member, pod: &str, port: u16) -> Result<(), String> {
    let forwarder = member.pods().portforward(pod, &[port]).await;
    let mut forwarder = forwarder.map_err(|error| member.why(&error))?;
    let said = forwarder.take_error(port);
    let mut there = forwarder.take_stream(port).ok_or("the member gives no stream")?;
    let carried = async { copy_bidirectional(&mut stream, &mut there).await.map(drop) };
    let refused = async {
        match said {
            Some(said) => match said.await {
                Some(why) => why,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        carried = carried => carried.map_err(|error| error.to_string())?,
        why = refused => return Err(why),
    }
    drop(there);
    forwarder.abort();
    Ok(())
}
