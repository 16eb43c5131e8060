//! Integers as registry files write them: decimal or `0x`, read from the text of the scalar.
//!
//! YAML readers disagree about `010`, turn large numbers into floats and know several spellings of
//! one number. A key that is off by a digit names another lock, so only the two spellings that
//! everybody reads alike are taken; for each of the others the mend is told.

use std::ops::RangeInclusive;

/// Why a text is not an integer of its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum IntegerError {
    #[error("{text} begins with a zero, which some read as octal: write {decimal}{or_octal}")]
    LeadingZero { text: String, decimal: String, or_octal: String },
    #[error("{text} is in a notation that is not read here: write {decimal}")]
    Notation { text: String, decimal: String },
    #[error("{0} is a floating-point number: write all digits of the integer")]
    Float(String),
    #[error(
        "{text} is above 9223372036854775807, the largest bigint: write its signed form {signed}"
    )]
    UnsignedBigint { text: String, signed: i64 },
    #[error(
        "{text} is above 2147483647, the largest int4: write its signed form {signed} \
         (OIDs and the columns of pg_locks are unsigned)"
    )]
    UnsignedInt4 { text: String, signed: i32 },
    #[error("{0} does not fit a bigint (-9223372036854775808 to 9223372036854775807)")]
    OutsideBigint(String),
    #[error(
        "{0} does not fit an int4 (-2147483648 to 2147483647): a bigint key is written without pair"
    )]
    OutsideInt4(String),
    #[error("{text} is outside {from} to {to}, where {what} lies")]
    Outside { text: String, what: &'static str, from: i128, to: i128 },
    #[error("{0:?} is not an integer: write decimal digits, or hexadecimal ones after 0x")]
    NotAnInteger(String),
}

/// A number for a `bigint`.
pub(super) fn parse_bigint(text: &str) -> Result<i64, IntegerError> {
    let number = parse_digits(text)?.ok_or_else(|| IntegerError::OutsideBigint(text.to_owned()))?;
    i64::try_from(number).map_err(|_| match u64::try_from(number) {
        Ok(unsigned) => {
            IntegerError::UnsignedBigint { text: text.to_owned(), signed: unsigned.cast_signed() }
        }
        Err(_) => IntegerError::OutsideBigint(text.to_owned()),
    })
}

/// A number for an `int4`, one half of a pair.
pub(super) fn parse_int4(text: &str) -> Result<i32, IntegerError> {
    let number = parse_digits(text)?.ok_or_else(|| IntegerError::OutsideInt4(text.to_owned()))?;
    i32::try_from(number).map_err(|_| match u32::try_from(number) {
        Ok(unsigned) => {
            IntegerError::UnsignedInt4 { text: text.to_owned(), signed: unsigned.cast_signed() }
        }
        Err(_) => IntegerError::OutsideInt4(text.to_owned()),
    })
}

/// A number for anything else, between two bounds; `what` names it in messages.
pub(super) fn parse_within(
    text: &str,
    what: &'static str,
    bounds: RangeInclusive<i128>,
) -> Result<i128, IntegerError> {
    parse_digits(text)?.filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (from, to) = bounds.into_inner();
        IntegerError::Outside { text: text.to_owned(), what, from, to }
    })
}

/// `None` for a number of more digits than an `i128` has.
fn parse_digits(text: &str) -> Result<Option<i128>, IntegerError> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", text),
    };
    if is_decimal(unsigned) {
        if unsigned.len() > 1 && unsigned.starts_with('0') {
            return Err(leading_zero(text, sign, unsigned));
        }
        return Ok(text.parse().ok());
    }
    if let Some(digits) = unsigned.strip_prefix("0x")
        && sign.is_empty()
        && is_in_radix(digits, 16)
    {
        return Ok(i128::from_str_radix(digits, 16).ok());
    }
    Err(refuse_notation(text, sign, unsigned))
}

fn is_decimal(text: &str) -> bool {
    is_in_radix(text, 10)
}

fn is_in_radix(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn leading_zero(text: &str, sign: &str, digits: &str) -> IntegerError {
    let decimal = match digits.trim_start_matches('0') {
        "" => "0".to_owned(),
        digits => format!("{sign}{digits}"),
    };
    let or_octal = match i128::from_str_radix(digits, 8) {
        Ok(octal) if octal != 0 && octal.to_string() != digits.trim_start_matches('0') => {
            format!(", or {sign}{octal} if octal was meant")
        }
        _ => String::new(),
    };
    IntegerError::LeadingZero { text: text.to_owned(), decimal, or_octal }
}

/// The mend for spellings that some reader or language takes for an integer.
fn refuse_notation(text: &str, sign: &str, unsigned: &str) -> IntegerError {
    let notation = |decimal: String| IntegerError::Notation { text: text.to_owned(), decimal };
    let prefixes = [("0x", 16), ("0X", 16), ("0o", 8), ("0O", 8), ("0b", 2), ("0B", 2)];
    for (prefix, radix) in prefixes {
        if let Some(digits) = unsigned.strip_prefix(prefix).map(|digits| digits.replace('_', ""))
            && is_in_radix(&digits, radix)
            && let Ok(number) = i128::from_str_radix(&digits, radix)
        {
            return notation(format!("{sign}{number}"));
        }
    }
    let unseparated = unsigned.strip_prefix('+').unwrap_or(unsigned).replace(['_', ',', '\''], "");
    if is_decimal(&unseparated) && unsigned.starts_with(|c: char| c == '+' || c.is_ascii_digit()) {
        return match unseparated.trim_start_matches('0') {
            "" => notation("0".to_owned()),
            digits => notation(format!("{sign}{digits}")),
        };
    }
    let looks_like_a_float = unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit())
        && unsigned.chars().all(|c| matches!(c, '0'..='9' | '.' | 'e' | 'E' | '+' | '-'));
    match unsigned.parse::<f64>() {
        // Up to 2^53 a float has one integer that it can mean.
        Ok(float)
            if looks_like_a_float && float.fract() == 0.0 && float <= 9_007_199_254_740_992.0 =>
        {
            notation(format!("{sign}{float:.0}"))
        }
        Ok(_) if looks_like_a_float => IntegerError::Float(text.to_owned()),
        _ => IntegerError::NotAnInteger(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decimal_and_hexadecimal_integers_are_read() {
        let cases = [
            ("0", 0),
            ("42", 42),
            ("-1", -1),
            ("0x2a", 42),
            ("0xFF", 255),
            ("0x00000001", 1),
            ("-9223372036854775808", i64::MIN),
            ("9223372036854775807", i64::MAX),
            ("0x7fffffffffffffff", i64::MAX),
        ];
        for (text, number) in cases {
            assert_eq!(parse_bigint(text), Ok(number), "{text}");
        }
        assert_eq!(parse_int4("-2147483648"), Ok(i32::MIN));
        assert_eq!(parse_int4("0x7fffffff"), Ok(i32::MAX));
    }

    #[test]
    fn other_spellings_of_a_bigint_are_refused_with_the_mend() {
        let cases = [
            (
                "010",
                "010 begins with a zero, which some read as octal: write 10, or 8 if octal was meant",
            ),
            (
                "-010",
                "-010 begins with a zero, which some read as octal: write -10, or -8 if octal was meant",
            ),
            ("007", "007 begins with a zero, which some read as octal: write 7"),
            ("089", "089 begins with a zero, which some read as octal: write 89"),
            ("00", "00 begins with a zero, which some read as octal: write 0"),
            ("0o10", "0o10 is in a notation that is not read here: write 8"),
            ("0b101", "0b101 is in a notation that is not read here: write 5"),
            ("0X1F", "0X1F is in a notation that is not read here: write 31"),
            ("-0x10", "-0x10 is in a notation that is not read here: write -16"),
            ("+42", "+42 is in a notation that is not read here: write 42"),
            ("1_000", "1_000 is in a notation that is not read here: write 1000"),
            ("1,000,000", "1,000,000 is in a notation that is not read here: write 1000000"),
            ("1e3", "1e3 is in a notation that is not read here: write 1000"),
            ("-4.0", "-4.0 is in a notation that is not read here: write -4"),
            ("1.5", "1.5 is a floating-point number: write all digits of the integer"),
            ("1e300", "1e300 is a floating-point number: write all digits of the integer"),
            (
                ".inf",
                "\".inf\" is not an integer: write decimal digits, or hexadecimal ones after 0x",
            ),
            (
                "true",
                "\"true\" is not an integer: write decimal digits, or hexadecimal ones after 0x",
            ),
            ("", "\"\" is not an integer: write decimal digits, or hexadecimal ones after 0x"),
            ("0x", "\"0x\" is not an integer: write decimal digits, or hexadecimal ones after 0x"),
            (
                "18446744073709551615",
                "18446744073709551615 is above 9223372036854775807, the largest bigint: write its signed form -1",
            ),
            (
                "0x8000000000000000",
                "0x8000000000000000 is above 9223372036854775807, the largest bigint: \
                 write its signed form -9223372036854775808",
            ),
            (
                "18446744073709551616",
                "18446744073709551616 does not fit a bigint (-9223372036854775808 to 9223372036854775807)",
            ),
            (
                "-9223372036854775809",
                "-9223372036854775809 does not fit a bigint (-9223372036854775808 to 9223372036854775807)",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse_bigint(text).unwrap_err().to_string(), message);
        }
        let endless = "9".repeat(100);
        assert_eq!(parse_bigint(&endless), Err(IntegerError::OutsideBigint(endless)));
    }

    #[test]
    fn an_int4_given_unsigned_is_refused_with_its_signed_form() {
        assert_eq!(
            parse_int4("3048471620").unwrap_err().to_string(),
            "3048471620 is above 2147483647, the largest int4: write its signed form -1246495676 \
             (OIDs and the columns of pg_locks are unsigned)"
        );
        assert_eq!(
            parse_int4("4294967296").unwrap_err().to_string(),
            "4294967296 does not fit an int4 (-2147483648 to 2147483647): \
             a bigint key is written without pair"
        );
    }

    proptest! {
        #[test]
        fn every_bigint_is_read_back(number: i64) {
            prop_assert_eq!(parse_bigint(&number.to_string()), Ok(number));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-+0-9a-fxXoOb_,.eE ]{0,24}|\\PC{0,8}") {
            let _ = (parse_bigint(&text), parse_int4(&text));
        }
    }
}
