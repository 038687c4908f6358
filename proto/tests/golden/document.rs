//! Bytes that the document explains.

/// Bytes that `docs/reference/protocol.md` explains, each with the name of its golden file; `|` marks the
/// boundaries of table rows.
pub(super) const EXAMPLES: [(&str, &str); 19] = [
    ("zeros", "f8 38"),
    ("constant", "61 07"),
    ("copy", "03 05 05 09 03 01 00 0d 12 03"),
    ("copy_far", "03 05 05 09 f8 38 02 29 00"),
    ("runs", "03 64 02 05 07 00"),
    ("runs_of_pages", "63 02 05 00 07"),
    ("packed", "04 e8 07 d2 0f 04 62 d0 50 08"),
    ("xor", "05 00 00 00 00 00 80 34 40 00 01 80 82 80 04 80 82 80 04"),
    ("level_runs", "06 0e 05 02 09"),
    ("level_packed", "07 0e 03 04 57 40 18 36"),
    ("missing_deadlines", "1b | e8 07 | 06 01 00 09 00 | 09 07"),
    ("off_grid", "00 | 00 | 03 00 f1 2e 8b 2f"),
    (
        "one_tick",
        "50 4c 4d 01 | ed fe 00 00 00 00 00 00 | 01 | 9c 80 af a2 db ff ad 06 | 06 | 02 | 01 | \
         00 | 01 09",
    ),
    (
        "first_frame",
        "01 87 01 | 05 | 00 | 06 6e 6f 64 65 31 37 | 05 30 2e 31 2e 30 | fd fe bf 4b b4 fd b7 0c 00 | \
         01 80 | 01 40 | 01 | fd 00 d8 c3 79 58 00 00 00 | fd 00 c0 25 cb 2e 02 00 00 | \
         fd 00 80 4b 96 5d 04 00 00 | 02 01 | 04 34 37 31 31 | 01 06 67 72 69 73 6f 75 | 01 fc a0 86 01 00 | 01 04 7a 6f c3 ab | \
         fd 00 c0 4b b4 fd b7 0c 00 | 01 01 | 0e 6d 65 6d 6f 72 79 2e 63 75 72 72 65 6e 74 | \
         00 01 00 | 03 01 01 | 01 01 00 | 04 01 | 0b 6d 65 6d 6f 72 79 2e 73 74 61 74 | 00 | 01 01",
    ),
    (
        "window",
        "16 | 09 03 00 | 01 | 19 7d | 01 e7 07 | 12 00 | fc | 02 01 01 e6 07 | 30 | 80 80 80 80 80 20 | \
         f3 e6 41 | df | bf f0 03 | 80 30 | 80 88 e4 07 | \
         01 | 00 03 | 90 01 f3 03 | 0f f4 03 | 07 01",
    ),
    ("partial", "fd 02"),
    ("message_ack", "50 4c 43 01 00 fb ed fe fd ff ff ff ff ff ff ff ff"),
    (
        "message_request",
        "50 4c 43 01  04  fb ed fe  07  fc a0 86 01 00  fd 00 c0 4b b4 fd b7 0c 00  15 7b 76 65 72 62 3a 72 65 73 65 74 2c 6a 6f 62 3a 34 37 31 31 7d",
    ),
    (
        "message_skipped_outbox_full",
        "50 4c 43 01  01  fb ed fe  02  fb 2c 01  00  fd 00 c0 4b b4 fd b7 0c 00  fd 80 44 6a b4 fd b7 0c 00 | \
         02  01 01  0b 6d 65 6d 6f 72 79 2e 73 74 61 74  fc 70 11 01 00  00    09 70 72 6f 63 2f 73 74 61 74  05",
    ),
];
