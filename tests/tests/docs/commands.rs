//! The commands of ours in the pages' blocks are ones that the programs take: each goes through the program's own parser.
//!
//! What a shell would do is done as far as pages need it: words, quotes, lines that go on, comments, and what stands behind a
//! pipe. `…` stands for anything: whoever writes it leaves out what the rest needs.

use clap::{
    Command,
    error::{ContextKind, ErrorKind},
};

use crate::{
    pages,
    reference::{agent, hub},
};

/// The commands in a block, as words.
fn commands(text: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut letters = text.chars().peekable();
    let end = |words: &mut Vec<String>, word: &mut Option<String>, all: &mut Vec<Vec<String>>| {
        words.extend(word.take());
        if !words.is_empty() {
            all.push(std::mem::take(words));
        }
    };
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(q), letter) if q == letter => quote = None,
            (Some('\''), letter) => word.get_or_insert_default().push(letter),
            (_, '\\') => match letters.next() {
                Some('\n') | None => words.extend(word.take()),
                Some(letter) => word.get_or_insert_default().push(letter),
            },
            (Some(_), letter) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(letter);
            }
            (None, '#') if word.is_none() => while letters.next_if(|letter| *letter != '\n').is_some() {},
            // What is a command's output, or input, is no argument.
            (None, '>' | '<') if letters.peek() != Some(&'(') => {
                word = None;
                while letters.next_if(|letter| matches!(letter, '>' | '&' | ' ')).is_some() {}
                while letters.next_if(|letter| !letter.is_whitespace() && *letter != ';').is_some() {}
            }
            (None, '\n' | '|' | ';' | '&' | '(' | ')') => end(&mut words, &mut word, &mut all),
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            (None, letter) => word.get_or_insert_default().push(letter),
        }
    }
    end(&mut words, &mut word, &mut all);
    all
}

/// What stands before a command.
const BEFORE: [&str; 10] = ["", "--", "sudo", "time", "do", "until", "while", "if", "then", "!"];

/// The program of ours that a command runs, and its words from there on: `kubectl exec … -- karmada-agent status` has one, too.
fn ours(words: &[String]) -> Option<(Command, &[String])> {
    words.iter().enumerate().find_map(|(at, word)| {
        let before = words[..at].last().map_or("", String::as_str);
        let runs = BEFORE.contains(&before) || (before.contains('=') && !before.starts_with('-'));
        match word.rsplit('/').next() {
            Some("karmada-hub") if runs => Some((hub(), &words[at..])),
            Some("karmada-agent") if runs => Some((agent(), &words[at..])),
            _ => None,
        }
    })
}

/// Why a program does not take these words.
fn refused(command: &Command, words: &[String]) -> Option<clap::Error> {
    let why = |words: &mut dyn Iterator<Item = &String>| {
        command.clone().try_get_matches_from(words).err().filter(|error| {
            let value = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
            let is_asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            !is_asked && !value.contains('…')
        })
    };
    // It stands for a value, or for all that is missing.
    let error = why(&mut words.iter())?;
    if words.iter().any(|word| word == "…") {
        let error = why(&mut words.iter().filter(|word| *word != "…"))?;
        let misses = [
            ErrorKind::MissingRequiredArgument,
            ErrorKind::MissingSubcommand,
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
        ];
        return (!misses.contains(&error.kind())).then_some(error);
    }
    Some(error)
}

/// Whether a command is refused for what only stands for a value, as `VERSION` does.
fn is_placeholder(error: &clap::Error) -> bool {
    let value = error.get(ContextKind::InvalidValue).map(ToString::to_string).unwrap_or_default();
    let is_name =
        value.len() > 1 && value.bytes().all(|b| b.is_ascii_uppercase() || !b.is_ascii_alphanumeric());
    is_name || value == "key=value:Effect"
}

#[test]
fn commands_that_pages_show_are_taken() {
    let (mut wrong, mut read) = (Vec::new(), 0);
    for page in pages::all() {
        let blocks =
            page.blocks.iter().filter(|block| matches!(block.info.split(' ').next(), Some("sh" | "bash")));
        for block in blocks {
            for words in commands(&block.text) {
                let Some((command, words)) = ours(&words) else { continue };
                read += 1;
                // Without arguments it takes those of the agent that runs.
                if words.len() == 2 && words[0].ends_with("karmada-agent") && words[1] == "doctor" {
                    continue;
                }
                if let Some(why) = refused(&command, words) {
                    wrong.push(format!("{}:{}: {}\n{why}", page.path.display(), block.line, words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read > 50, "{read} commands were found: how pages write them has changed");
}

/// In running text, too. There a command may be named without what it needs: `karmada-hub serve`.
#[test]
fn commands_that_sentences_name_are_taken() {
    let (mut wrong, mut read) = (Vec::new(), 0);
    for page in pages::all() {
        for text in &page.code {
            for words in commands(text) {
                let Some((command, words)) = ours(&words).filter(|(_, words)| words.len() > 1) else {
                    continue;
                };
                read += 1;
                // Agents ask this of each other's programs; nobody types it.
                if words[1] == "check" {
                    continue;
                }
                let words: Vec<String> = words.iter().cloned().chain(["…".to_owned()]).collect();
                if let Some(why) = refused(&command, &words).filter(|error| !is_placeholder(error)) {
                    wrong.push(format!("{}: {text}\n{why}", page.path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(read > 80, "{read} commands were found: how pages write them has changed");
}

#[test]
fn what_a_program_does_not_take_is_found() {
    for (text, taken) in [
        ("karmada-hub get clusters -w   # and a comment", true),
        ("karmada-hub serve … --audit-log-path a | cat", true),
        ("x=1 karmada-agent hold on --why 'router swap' \\\n  --for 2h; true", true),
        ("kubectl exec deploy/karmada-agent -- /bin/karmada-agent status > out", true),
        ("karmada-hub get clusters --no-such-flag", false),
        ("karmada-hub nothing", false),
        ("kubectl exec a -- karmada-agent hold on --for never", false),
    ] {
        let mut found = Vec::new();
        for words in commands(text) {
            found.extend(ours(&words).map(|(command, words)| refused(&command, words)));
        }
        assert_eq!(found.iter().map(Option::is_none).collect::<Vec<_>>(), [taken], "{text}: {found:?}");
    }
    for (text, taken) in [("upgrade agents --to VERSION", true), ("upgrade agents --to newest", false)] {
        let words: Vec<String> = format!("karmada-hub {text}").split(' ').map(str::to_owned).collect();
        assert_eq!(refused(&hub(), &words).is_none_or(|error| is_placeholder(&error)), taken, "{text}");
    }
    assert_eq!(
        commands("install karmada-hub /usr; apt install karmada-agent")
            .iter()
            .filter_map(|w| ours(w))
            .count(),
        0
    );
}
