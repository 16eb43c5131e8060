//! PostgreSQL's `hashtext` and `hashtextextended`, computed without a server.
//!
//! Applications turn names into keys with these functions, so the registry has to know their
//! values before any lock is seen. Only bytes are hashed here: which bytes a text has is decided by
//! the encoding of the database, and that is the caller's to know. The numbers go into
//! [`Key`](crate::key::Key)s.
//!
//! The functions are `hash_bytes` and `hash_bytes_extended` of the server, which are Bob Jenkins'
//! `lookup3` with constants of their own. The server reads words in its machine's byte order; all
//! platforms that matter are little-endian, and so is this code on any platform.

/// The golden ratio that the three words start from, as in Bob Jenkins' earlier functions.
const GOLDEN_RATIO: u32 = 0x9e37_79b9;
/// What the server adds to it.
const SERVER_SALT: u32 = 3_923_095;

/// `hashtext(text)` for a text with these bytes, under any deterministic collation.
pub fn hashtext(bytes: &[u8]) -> i32 {
    let [_, c] = lookup3(bytes, 0);
    c.cast_signed()
}

/// `hashtextextended(text, seed)`. Under seed 0 its low half is [`hashtext`].
pub fn hashtextextended(bytes: &[u8], seed: i64) -> i64 {
    let [b, c] = lookup3(bytes, seed.cast_unsigned());
    ((u64::from(b) << 32) | u64::from(c)).cast_signed()
}

/// The last two of the three words that the bytes were mixed into.
fn lookup3(bytes: &[u8], seed: u64) -> [u32; 2] {
    let start = GOLDEN_RATIO.wrapping_add(low_half(bytes.len() as u64)).wrapping_add(SERVER_SALT);
    let mut words = [start; 3];
    if seed != 0 {
        add(&mut words, [low_half(seed >> 32), low_half(seed), 0]);
        mix(&mut words);
    }
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        add(&mut words, [word(&block[..4]), word(&block[4..8]), word(&block[8..])]);
        mix(&mut words);
    }
    let mut tail = [0; 12];
    let rest = blocks.remainder();
    let (head, last) = rest.split_at(rest.len().min(8));
    tail[..head.len()].copy_from_slice(head);
    // The lowest byte of the third word is skipped: it stood for the length in the original.
    tail[9..9 + last.len()].copy_from_slice(last);
    add(&mut words, [word(&tail[..4]), word(&tail[4..8]), word(&tail[8..])]);
    finish(&mut words);
    [words[1], words[2]]
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low_half(value: u64) -> u32 {
    value as u32
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

fn add(words: &mut [u32; 3], summands: [u32; 3]) {
    for (word, summand) in words.iter_mut().zip(summands) {
        *word = word.wrapping_add(summand);
    }
}

/// Mixes three words reversibly.
fn mix([a, b, c]: &mut [u32; 3]) {
    fn step(x: &mut u32, y: &mut u32, z: u32, rotation: u32) {
        *x = x.wrapping_sub(*y) ^ y.rotate_left(rotation);
        *y = y.wrapping_add(z);
    }
    step(a, c, *b, 4);
    step(b, a, *c, 6);
    step(c, b, *a, 8);
    step(a, c, *b, 16);
    step(b, a, *c, 19);
    step(c, b, *a, 4);
}

/// Lets every bit of the three words reach the last two.
fn finish([a, b, c]: &mut [u32; 3]) {
    fn step(x: &mut u32, y: u32, rotation: u32) {
        *x = (*x ^ y).wrapping_sub(y.rotate_left(rotation));
    }
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SELECT hashtext(t), hashtextextended(t, 0), hashtextextended(t, 1),
    /// hashtextextended(t, -1), hashtextextended(t, 4294967296)` on PostgreSQL 15.18, x86-64, in a
    /// database in UTF8. Every length up to two blocks and one byte is there.
    const SERVER_VALUES: [(&str, i32, [i64; 4]); 34] = [
        (
            "",
            -1477818771,
            [-6939563903564495251, -150071773020461347, -5142811166230430645, 2274062085362124585],
        ),
        (
            "t",
            -1881210152,
            [4275320112252125912, 4552470501681795962, -2406718962056194024, 5428542067077766917],
        ),
        (
            "th",
            -1444241630,
            [-260480641141137630, 5300231676749956375, -5980703470639664464, 7672293642349776816],
        ),
        (
            "the",
            600074762,
            [-7279885857207326198, -6859301539895246300, 1726187573654428624, 2736941643909093441],
        ),
        (
            "the ",
            7913492,
            [6850303757150371860, -3735796062108650957, 4683258452195896305, 5997682953548834520],
        ),
        (
            "the q",
            1149411084,
            [-2448769718559793396, 7089323694160656306, -3137578221759683109, -8516068529748073554],
        ),
        (
            "the qu",
            1697403352,
            [-2413607138587029032, 5276100353026735535, -7171426681115442814, -2378302927035698209],
        ),
        (
            "the qui",
            -1628164279,
            [9152116406072127305, -2935290579796090052, -2739889067108205311, -3856093940420438682],
        ),
        (
            "the quic",
            -1094783329,
            [-2787860562804019553, -2476968077648681329, -8549053616681314417, 2709956728410876813],
        ),
        (
            "the quick",
            -1729394027,
            [-744539420078929259, 7523404872976197830, -176388523762548606, -5876037665384610869],
        ),
        (
            "the quick ",
            1889871343,
            [-1849078621283211793, 5117493869764433861, 9127936897207152491, 2559880947431219492],
        ),
        (
            "the quick b",
            -1908858520,
            [7682751335837016424, -283048596041364502, 67526126261045256, 1392802177874771094],
        ),
        (
            "the quick br",
            1889281494,
            [-5123255151643318826, 5429677052375297727, 6688915493183270584, -6593748906343797057],
        ),
        (
            "the quick bro",
            46570034,
            [8874471081575356978, 5298301050360954153, -6093867942229667619, 8985490143458148525],
        ),
        (
            "the quick brow",
            1844197808,
            [-7321833551707752016, -1574545436789857666, -2697343764334883079, -772764292604022830],
        ),
        (
            "the quick brown",
            -699650311,
            [-7098276748398416135, 3953327274717914017, -3184084297148987876, 8376217422811204503],
        ),
        (
            "the quick brown ",
            -1108778844,
            [5607407419629592740, -7085962966931802711, 2225068962222953661, 7002976836716057154],
        ),
        (
            "the quick brown f",
            -1195212318,
            [4378984968307769826, -8502418829486329063, 8772654842565178854, 6449177708473635443],
        ),
        (
            "the quick brown fo",
            1943249779,
            [-7852856955829509261, -6568089408467868281, 7388709766737194597, -6669711820792279266],
        ),
        (
            "the quick brown fox",
            -716906088,
            [-5837659518682209896, 5181104984721609094, -6000031337800914227, -3809609743378377783],
        ),
        (
            "the quick brown fox ",
            -788383395,
            [1321335228853270877, -6557937303327683789, -3046343623203680519, -6390585221820787630],
        ),
        (
            "the quick brown fox j",
            177345300,
            [1534525432023618324, -819970409627586021, 3003740123237117184, 8465604374893165296],
        ),
        (
            "the quick brown fox ju",
            -577128545,
            [180991214061467551, -273930028042423337, -30689976580390658, 3345615195241772945],
        ),
        (
            "the quick brown fox jum",
            1822420587,
            [1973960885095362155, -8111305832399468549, -7328533134830405504, 7035780353021021322],
        ),
        (
            "the quick brown fox jump",
            1714565059,
            [3717288698844426179, 5296592367380266727, -4877792637194290916, 12688658216458778],
        ),
        (
            "the quick brown fox jumps",
            84238858,
            [6931113687160021514, 8920554697330676502, 7618546933406088996, 1390927581488869976],
        ),
        (
            "account:63575",
            -1054191989,
            [6891535708417838731, -3639482113404737518, -4205963018030435808, 6924401508800555768],
        ),
        (
            "account:68747",
            -1054191989,
            [-1799405519267803509, -6470618073454150823, -8863624141579036880, 2289932959180539674],
        ),
        (
            "cron:recalc-reward-points",
            -1201114749,
            [6110350855857795459, -3325659218770078564, 7111001132860284753, 8215635263357986868],
        ),
        (
            "jobs",
            -1679774495,
            [7259640204928003297, 2779800879239342122, -7996330531658456789, 1144788203139988495],
        ),
        (
            "job:nightly",
            1973311789,
            [7631115284381587757, -1554529054758351905, 6313286227669458663, 5268481641384105338],
        ),
        (
            "café",
            103771354,
            [2866814374384725210, 7096887989000816717, -9056463070026987671, -4857239976731853755],
        ),
        (
            "数据库",
            -1855335234,
            [2827865285408183486, 1937276847603619202, 7636060417159715203, -7584246198789832487],
        ),
        (
            "🔒",
            -576118370,
            [6537472898664833438, -8699739672185416770, 3843055607898324478, 7981225776967782754],
        ),
    ];

    #[test]
    fn hashes_are_those_of_the_server() {
        for (text, plain, extended) in SERVER_VALUES {
            assert_eq!(hashtext(text.as_bytes()), plain, "{text:?}");
            for (seed, value) in [0, 1, -1, 4_294_967_296].into_iter().zip(extended) {
                assert_eq!(hashtextextended(text.as_bytes(), seed), value, "{text:?}, seed {seed}");
            }
        }
    }

    /// `hashtext(repeat('x', 1000))`, `hashtextextended(repeat('é', 1000), 8816678312871386365)`
    /// and `hashtextextended('', '-9223372036854775808')` on the same server.
    #[test]
    fn long_texts_and_any_seed_are_hashed_as_the_server_does() {
        assert_eq!(hashtext("x".repeat(1000).as_bytes()), -1_157_355_676);
        assert_eq!(
            hashtextextended("é".repeat(1000).as_bytes(), 8_816_678_312_871_386_365),
            7_069_975_938_048_240_224
        );
        assert_eq!(hashtextextended(b"", i64::MIN), -8_806_176_666_887_012_470);
    }

    #[test]
    fn one_text_in_two_encodings_has_two_hashes() {
        assert_eq!(hashtext("café".as_bytes()), 103_771_354);
        assert_eq!(hashtext(b"caf\xe9"), -985_813_755);
    }
}
