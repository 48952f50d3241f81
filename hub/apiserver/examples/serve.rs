//! A bare API server in memory, with TLS and an administrator's kubeconfig: for `replay.py` and for trying clients.
//!
//! ```text
//! cargo run -p karmada-apiserver --example serve -- DIR [PORT]
//! ```

use std::{error::Error, path::Path};

use karmada_apiserver::{
    ApiServer, Registration,
    authn::{Authenticator, Tokens},
    listener::{Tls, serve},
    open_store,
    pki::Pki,
};
use karmada_env::Env;
use karmada_store::engine::memory::Memory;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("usage: serve DIR [PORT]")?;
    let port: u16 = args.next().map_or(Ok(0), |port| port.parse())?;
    let env = Env::system();
    let pki = Pki::open_or_create(Path::new(&dir), &["127.0.0.1".to_owned()], &env)?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let kubeconfig = pki.write_admin_kubeconfig(&pki.server_url(listener.local_addr()?.port()))?;

    let shutdown = CancellationToken::new();
    let server = ApiServer::new(
        open_store(Memory::new(), &env)?,
        env.clone(),
        Registration::default(),
        shutdown.clone(),
    );
    let background = server.start().await;
    println!("{}", kubeconfig.display());
    let authenticator = Authenticator::new(Tokens::new(), env.clone());
    server.authenticate_by(authenticator);
    serve(listener, Tls::new(&pki, &env)?, server.service(), shutdown).await;
    background.wait().await;
    Ok(())
}
