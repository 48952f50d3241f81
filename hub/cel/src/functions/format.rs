//! `'…'.format([…])`.

use super::convert::show;
use crate::value::{MapVal, Val};

/// Fills in a template with `%s`, `%d`, `%f`, `%e`, `%b`, `%o`, `%x` and `%X`.
pub(super) fn format(template: &str, args: &[Val<'_>]) -> Result<String, String> {
    let mut out = String::new();
    let mut args = args.iter().enumerate();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.peek() == Some(&'%') {
            chars.next();
            out.push('%');
            continue;
        }
        let mut precision = None;
        if chars.peek() == Some(&'.') {
            chars.next();
            let mut digits = String::new();
            while chars.peek().is_some_and(char::is_ascii_digit) {
                digits.extend(chars.next());
            }
            let parsed = digits.parse().map_err(|_| "error while parsing precision".to_owned())?;
            precision = Some(usize::min(parsed, 1000));
        }
        let verb = chars.next().ok_or("unexpected end of string")?;
        let Some((index, arg)) = args.next() else {
            return Err(format!("index {} out of range", out.matches('%').count()));
        };
        out.push_str(&one(verb, precision.unwrap_or(6), arg).ok_or_else(|| {
            format!(
                "error during formatting: argument {index}: %{verb} clause does not take a value of type {}",
                arg.type_name()
            )
        })?);
    }
    Ok(out)
}

#[allow(clippy::cast_precision_loss, reason = "shown with few digits")]
fn one(verb: char, precision: usize, arg: &Val<'_>) -> Option<String> {
    let real = match arg {
        Val::Int(n) => Some(*n as f64),
        Val::Uint(n) => Some(*n as f64),
        Val::Double(n) => Some(*n),
        _ => None,
    };
    let radix = |n: i128, digits: String| if n < 0 { format!("-{digits}") } else { digits };
    let whole = match arg {
        Val::Int(n) => Some(i128::from(*n)),
        Val::Uint(n) => Some(i128::from(*n)),
        Val::Bool(b) if verb == 'b' => Some(i128::from(*b)),
        _ => None,
    };
    Some(match verb {
        's' => text(arg),
        'd' => whole.map(|n| n.to_string()).or_else(|| match arg {
            Val::Double(n) => Some(n.to_string()),
            _ => None,
        })?,
        'f' => format!("{:.precision$}", real?),
        'e' => {
            let shown = format!("{:.precision$e}", real?);
            let (mantissa, exponent) = shown.split_once('e')?;
            let exponent: i32 = exponent.parse().ok()?;
            format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        'b' => whole.map(|n| radix(n, format!("{:b}", n.unsigned_abs())))?,
        'o' => whole.map(|n| radix(n, format!("{:o}", n.unsigned_abs())))?,
        'x' | 'X' => {
            let shown = match arg {
                Val::Text(text) => hex(text.as_bytes()),
                Val::Bytes(bytes) => hex(bytes),
                _ => whole.map(|n| radix(n, format!("{:x}", n.unsigned_abs())))?,
            };
            if verb == 'X' { shown.to_uppercase() } else { shown }
        }
        _ => return None,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn text(value: &Val<'_>) -> String {
    match value {
        Val::List(list) => {
            let items: Vec<String> = list.items().unwrap_or_default().iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
        Val::Map(map @ (MapVal::Json(..) | MapVal::Object(..) | MapVal::Made(_))) => {
            let entries = map.keys().into_iter().filter_map(|key| {
                let value = map.get(&key).ok().flatten()?;
                Some(format!("{}: {}", text(&key), text(&value)))
            });
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Val::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => show(other),
    }
}
