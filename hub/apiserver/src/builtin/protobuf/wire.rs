//! Protobuf's wire format, read without copying. Errors are in the words of the code that Kubernetes generates.

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    Eof,
    /// A number of more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length that no message has.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A group ends that did not begin.
    #[error("proto: {message}: wiretype end group for non-group")]
    EndGroup {
        /// Go's name of the type.
        message: String,
    },
    /// Numbers of fields begin at 1.
    #[error("proto: {message}: illegal tag {number} (wire type {wire})")]
    Tag {
        /// Go's name of the type.
        message: String,
        /// What stands where a field's number should.
        number: i32,
        /// Its wire type.
        wire: u8,
    },
    /// A field is written in a way that its type is not.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// Go's name of the field.
        field: String,
        /// How it is written.
        wire: u8,
    },
    /// A wire type that does not exist.
    #[error("proto: illegal wireType {0}")]
    Illegal(u8),
    /// Nested deeper than any real object.
    #[error("exceeded max depth")]
    Depth,
    /// More messages within a message than any real object has.
    #[error("too many messages within the object")]
    Size,
    /// A value that its type does not have.
    #[error("{0}")]
    Value(String),
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64([u8; 8]),
    /// Wire type 2: text, bytes, messages, packed lists.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32([u8; 4]),
    /// Wire type 3, skipped.
    Group,
}

impl Payload<'_> {
    /// The number of its wire type.
    pub(crate) fn wire(self) -> u8 {
        match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Group => 3,
            Self::Fixed32(_) => 5,
        }
    }

    /// The error of a field that is written so.
    pub(crate) fn wrong(self, field: &str) -> WireError {
        // Go's names begin with a capital and are otherwise JSON's.
        let mut letters = field.chars();
        let first = letters.next().map(|c| c.to_ascii_uppercase());
        WireError::WireType { field: first.into_iter().chain(letters).collect(), wire: self.wire() }
    }
}

impl<'a> Payload<'a> {
    /// Text, bytes or a message.
    ///
    /// # Errors
    /// Another wire type.
    pub(crate) fn bytes(self, field: &str) -> Result<&'a [u8], WireError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong(field)),
        }
    }

    /// A number or a bool.
    ///
    /// # Errors
    /// Another wire type.
    pub(crate) fn varint(self, field: &str) -> Result<u64, WireError> {
        match self {
            Self::Varint(number) => Ok(number),
            other => Err(other.wrong(field)),
        }
    }
}

/// Takes a number from the front.
///
/// # Errors
/// The bytes end, or it does not end within ten bytes.
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(WireError::Eof)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(WireError::Overflow)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], WireError> {
    let (head, rest) = bytes.split_at_checked(length).ok_or(WireError::Eof)?;
    *bytes = rest;
    Ok(head)
}

fn chunk<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], WireError> {
    let (head, rest) = bytes.split_first_chunk().ok_or(WireError::Eof)?;
    *bytes = rest;
    Ok(*head)
}

/// Takes the next field from the front of a message, `None` at its end.
///
/// # Errors
/// See [`WireError`]; `message` names the type in it.
pub(crate) fn field<'a>(
    bytes: &mut &'a [u8],
    message: &str,
) -> Result<Option<(u32, Payload<'a>)>, WireError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (number, wire) = tag(bytes)?;
    if wire == 4 {
        return Err(WireError::EndGroup { message: message.to_owned() });
    }
    let Some(positive) = u32::try_from(number).ok().filter(|n| *n > 0) else {
        return Err(WireError::Tag { message: message.to_owned(), number, wire });
    };
    Ok(Some((positive, payload(bytes, wire)?)))
}

/// A field's number, as Go cuts it, and its wire type.
fn tag(bytes: &mut &[u8]) -> Result<(i32, u8), WireError> {
    let tag = varint(bytes)?;
    #[expect(clippy::cast_possible_truncation, reason = "as Go does")]
    Ok(((tag >> 3) as i32, (tag & 7) as u8))
}

fn payload<'a>(bytes: &mut &'a [u8], wire: u8) -> Result<Payload<'a>, WireError> {
    Ok(match wire {
        0 => Payload::Varint(varint(bytes)?),
        1 => Payload::Fixed64(chunk(bytes)?),
        2 => {
            let length = varint(bytes)?;
            // Lengths are signed in Go.
            let length = i64::try_from(length).map_err(|_| WireError::Length)?;
            Payload::Bytes(take(bytes, usize::try_from(length).map_err(|_| WireError::Length)?)?)
        }
        3 => {
            skip_group(bytes)?;
            Payload::Group
        }
        5 => Payload::Fixed32(chunk(bytes)?),
        other => return Err(WireError::Illegal(other)),
    })
}

/// Skips to behind the end of a group; groups within are counted, not recursed into.
fn skip_group(bytes: &mut &[u8]) -> Result<(), WireError> {
    let mut depth = 1_u32;
    while depth > 0 {
        match tag(bytes)?.1 {
            3 => depth += 1,
            4 => depth -= 1,
            wire => {
                payload(bytes, wire)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(mut bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, WireError> {
        let mut out = Vec::new();
        while let Some(field) = field(&mut bytes, "M")? {
            out.push(field);
        }
        Ok(out)
    }

    #[test]
    fn fields_of_every_wire_type() {
        let message = [
            &[0x08, 0x96, 0x01][..],
            &[0x11, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x1a, 2, b'h', b'i'],
            &[0x23, 0x08, 1, 0x2b, 0x2c, 0x24],
            &[0x2d, 1, 2, 3, 4],
        ]
        .concat();
        assert_eq!(
            fields(&message),
            Ok(vec![
                (1, Payload::Varint(150)),
                (2, Payload::Fixed64([1, 2, 3, 4, 5, 6, 7, 8])),
                (3, Payload::Bytes(b"hi")),
                (4, Payload::Group),
                (5, Payload::Fixed32([1, 2, 3, 4])),
            ])
        );
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (bytes, message) in [
            (&[0x08][..], "unexpected EOF"),
            (&[0x0a, 5, 1], "unexpected EOF"),
            (&[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], "proto: integer overflow"),
            (
                &[0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
                "proto: negative length found during unmarshaling",
            ),
            (&[0x0c], "proto: M: wiretype end group for non-group"),
            (&[0x02, 0], "proto: M: illegal tag 0 (wire type 2)"),
            (&[0x0f], "proto: illegal wireType 7"),
            (&[0x0b, 0x08], "unexpected EOF"),
        ] {
            assert_eq!(fields(bytes).unwrap_err().to_string(), message, "{bytes:?}");
        }
    }
}
