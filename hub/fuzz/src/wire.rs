//! Changes of messages of protobuf: lengths are made to fit again. Before the message stand the byte that names its kind, and
//! the four by which a body says what it is, if they are there.

use crate::{Blur, Random};

const ENVELOPE: &[u8] = b"k8s\0";
const DEEPEST: usize = 12;

type Message = Vec<(u64, Part)>;

#[derive(Clone)]
enum Part {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(Vec<u8>),
    Message(Message),
}

/// See [`crate::Change`].
pub fn change(bytes: &[u8], random: &mut Random, blur: Blur<'_>) -> Option<Vec<u8>> {
    let (kind, rest) = bytes.split_first()?;
    let (mut out, rest) = match rest.strip_prefix(ENVELOPE) {
        Some(inner) => ([&[*kind], ENVELOPE].concat(), inner),
        None => (vec![*kind], rest),
    };
    let mut message = read(rest, 0)?;
    for _ in 0..=random.below(3) {
        step(&mut message, random, blur);
    }
    write(&message, &mut out);
    Some(out)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn read(mut bytes: &[u8], depth: usize) -> Option<Message> {
    let mut message = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let part = match tag & 7 {
            0 => Part::Varint(varint(&mut bytes)?),
            1 => {
                let (head, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Part::Fixed64(*head)
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (inner, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                // Text may be read as a message, too, and seldom is one.
                let is_text = inner.iter().all(|byte| (b' '..=b'~').contains(byte));
                match (!is_text && depth < DEEPEST).then(|| read(inner, depth + 1)).flatten() {
                    Some(message) => Part::Message(message),
                    None => Part::Bytes(inner.to_vec()),
                }
            }
            5 => {
                let (head, rest) = bytes.split_first_chunk()?;
                bytes = rest;
                Part::Fixed32(*head)
            }
            _ => return None,
        };
        message.push((tag >> 3, part));
    }
    Some(message)
}

fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn write(message: &Message, out: &mut Vec<u8>) {
    for (number, part) in message {
        let mut tag = |wire| put(number << 3 | wire, out);
        match part {
            Part::Varint(value) => {
                tag(0);
                put(*value, out);
            }
            Part::Fixed64(bytes) => {
                tag(1);
                out.extend_from_slice(bytes);
            }
            Part::Fixed32(bytes) => {
                tag(5);
                out.extend_from_slice(bytes);
            }
            Part::Bytes(bytes) => {
                tag(2);
                put(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
            Part::Message(message) => {
                tag(2);
                let mut inner = Vec::new();
                write(message, &mut inner);
                put(inner.len() as u64, out);
                out.extend_from_slice(&inner);
            }
        }
    }
}

fn count(message: &Message) -> usize {
    let inner = |(_, part): &(u64, Part)| if let Part::Message(message) = part { count(message) } else { 0 };
    1 + message.iter().map(inner).sum::<usize>()
}

/// The message that is so many before it in the order of reading.
fn nth<'a>(message: &'a mut Message, before: &mut usize) -> Option<&'a mut Message> {
    if *before == 0 {
        return Some(message);
    }
    *before -= 1;
    message.iter_mut().find_map(|(_, part)| match part {
        Part::Message(message) => nth(message, before),
        _ => None,
    })
}

fn step(message: &mut Message, random: &mut Random, blur: Blur<'_>) {
    let all = count(message);
    let mut from = random.below(all);
    let donor = nth(message, &mut from).cloned().unwrap_or_default();
    let mut at = random.below(all);
    let Some(inner) = nth(message, &mut at) else { return };
    if inner.is_empty() || random.below(3) == 0 {
        let part = match random.below(3) {
            0 => Part::Message(donor),
            _ => leaf(random),
        };
        let (number, place) = (a_number(random), random.below(inner.len() + 1));
        return inner.insert(place, (number, part));
    }
    let at = random.below(inner.len());
    match random.below(6) {
        0 => drop(inner.remove(at)),
        1 => inner.push(inner[at].clone()),
        2 => inner[at].0 = a_number(random),
        3 => inner[at].1 = leaf(random),
        4 => {
            let whole = std::mem::take(inner);
            *inner = vec![(a_number(random), Part::Message(whole))];
        }
        _ => match &mut inner[at].1 {
            Part::Bytes(bytes) => blur(bytes),
            Part::Varint(value) => *value = a_value(random),
            Part::Message(message) => message.extend(donor),
            Part::Fixed64(bytes) => bytes.reverse(),
            Part::Fixed32(bytes) => bytes.reverse(),
        },
    }
}

fn a_number(random: &mut Random) -> u64 {
    match random.below(16) {
        0 => *random.one_of(&[0, 1 << 28, (1 << 29) - 1, 1 << 31, 1 << 40]),
        1..=3 => 1 + random.below(60) as u64,
        _ => 1 + random.below(16) as u64,
    }
}

fn a_value(random: &mut Random) -> u64 {
    match random.below(4) {
        0 => *random.one_of(&[u64::MAX, i64::MAX as u64, 1 << 63, u64::from(u32::MAX), 1 << 31]),
        _ => random.below(300) as u64,
    }
}

fn leaf(random: &mut Random) -> Part {
    const TEXTS: [&[u8]; 8] =
        [b"", b"a", b"v1", b"TCP", b"10Mi", b"\xff", b"\0", b"2026-01-01T00:00:00Z"];
    match random.below(6) {
        0 | 1 => Part::Varint(a_value(random)),
        2 | 3 => Part::Bytes(random.one_of(&TEXTS).to_vec()),
        4 => Part::Message(Vec::new()),
        _ => match random.below(2) {
            0 => Part::Fixed64([random.below(256) as u8; 8]),
            _ => Part::Fixed32([random.below(256) as u8; 4]),
        },
    }
}
