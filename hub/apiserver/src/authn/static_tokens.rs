//! Tokens that an operator has written into a file, each with its user.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::identity::UserInfo;

/// Bearer tokens and their users. Only digests are kept, so that a lookup tells nothing of a token by its time.
#[derive(Clone, Default)]
pub struct Tokens {
    users: BTreeMap<[u8; 32], UserInfo>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.users.len()).finish()
    }
}

/// A token file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A line has not the form `token,user,uid[,"group,group"]`.
    #[error("{}, line {line}: expected token,user,uid[,\"group,group\"]", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
}

impl Tokens {
    /// No tokens: every bearer token is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads Kubernetes' static token file: one `token,user,uid,"group,group"` a line; the groups may be missing.
    ///
    /// # Errors
    /// When the file cannot be read or a line has another form.
    pub fn from_file(path: &Path) -> Result<Self, TokenFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TokenFileError::Read { path: path.to_path_buf(), source })?;
        let mut tokens = Self::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, user) = token_line(line)
                .ok_or_else(|| TokenFileError::Line { path: path.to_path_buf(), line: index + 1 })?;
            tokens.insert(token, user);
        }
        Ok(tokens)
    }

    /// Lets `token` stand for `user`.
    pub fn insert(&mut self, token: &str, user: UserInfo) {
        self.users.insert(Sha256::digest(token).into(), user);
    }

    /// Takes in what another set holds.
    pub fn extend(&mut self, other: Self) {
        self.users.extend(other.users);
    }

    /// The user whose token has this digest.
    pub(super) fn get(&self, digest: &[u8; 32]) -> Option<&UserInfo> {
        self.users.get(digest)
    }
}

fn token_line(line: &str) -> Option<(&str, UserInfo)> {
    let mut parts = line.splitn(4, ',').map(str::trim);
    let (token, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if token.is_empty() || name.is_empty() {
        return None;
    }
    let groups = parts.next().unwrap_or_default().trim_matches('"');
    let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
    Some((token, UserInfo { uid: uid.to_owned(), ..UserInfo::new(name, groups) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::AUTHENTICATED;

    #[test]
    fn token_files() {
        let dir = tempfile::TempDir::new().unwrap();
        let path = dir.path().join("tokens");
        let cases = [
            ("a,u,1,\"g,h\"\n# note\n\n", Ok(("a", vec!["g", "h", AUTHENTICATED]))),
            ("a,u,1\n", Ok(("a", vec![AUTHENTICATED]))),
            ("a,u\n", Err(1)),
            ("a,u,1\n,u,1\n", Err(2)),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            match (Tokens::from_file(&path), expected) {
                (Ok(tokens), Ok((token, groups))) => {
                    assert_eq!(tokens.get(&Sha256::digest(token).into()).unwrap().groups, groups, "{text:?}")
                }
                (Err(TokenFileError::Line { line, .. }), Err(expected)) => {
                    assert_eq!(line, expected, "{text:?}")
                }
                (got, _) => panic!("{text:?}: {got:?}"),
            }
        }
    }
}
