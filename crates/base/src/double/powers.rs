//! Numbers with mantissas of 64 bits, and powers of ten as such numbers.

/// Bits of a double's mantissa behind the first one.
const FRACTION_BITS: i32 = 52;
const HIDDEN_BIT: u64 = 1 << FRACTION_BITS;
/// A double's exponent of zero, for a whole mantissa.
const BIAS: i32 = 1023 + FRACTION_BITS;

/// `mantissa * 2^exponent`.
#[derive(Clone, Copy)]
pub(super) struct Scaled {
    pub(super) mantissa: u64,
    pub(super) exponent: i32,
}

impl Scaled {
    /// A positive double, not normalized.
    pub(super) fn of(value: f64) -> Scaled {
        let bits = value.to_bits();
        let fraction = bits & (HIDDEN_BIT - 1);
        match (bits >> FRACTION_BITS) as i32 & 0x7ff {
            0 => Scaled { mantissa: fraction, exponent: 1 - BIAS },
            exponent => Scaled { mantissa: fraction | HIDDEN_BIT, exponent: exponent - BIAS },
        }
    }

    /// The middles between a double and its neighbours, below and above, with one exponent.
    pub(super) fn boundaries(self) -> (Scaled, Scaled) {
        let Scaled { mantissa, exponent } = self;
        let upper = Scaled { mantissa: 2 * mantissa + 1, exponent: exponent - 1 }.normalized();
        // Below a power of two, doubles are twice as dense.
        let shift = if mantissa == HIDDEN_BIT { 2 } else { 1 };
        let lower = ((mantissa << shift) - 1) << (exponent - shift - upper.exponent);
        (Scaled { mantissa: lower, exponent: upper.exponent }, upper)
    }

    pub(super) fn normalized(self) -> Scaled {
        let shift = self.mantissa.leading_zeros();
        Scaled { mantissa: self.mantissa << shift, exponent: self.exponent - shift.cast_signed() }
    }

    /// The product, its mantissa rounded to 64 bits.
    pub(super) fn times(self, other: Scaled) -> Scaled {
        let product = u128::from(self.mantissa) * u128::from(other.mantissa) + (1 << 63);
        Scaled { mantissa: (product >> 64) as u64, exponent: self.exponent + other.exponent + 64 }
    }
}

/// The power of ten that brings a number of this exponent, normalized, to one of -60 to -32; and
/// its own exponent of ten.
pub(super) fn for_exponent(exponent: i32) -> (Scaled, i32) {
    // Redis' search begins here, and two powers may fit.
    let guess = (-f64::from(exponent + MANTISSAS.len() as i32) * std::f64::consts::LOG10_2) as i32;
    let mut index = (guess - FIRST) / STEP;
    loop {
        let ten = FIRST + index * STEP;
        let power = Scaled { mantissa: MANTISSAS[index as usize], exponent: exponent_of(ten) };
        match exponent + power.exponent + 64 {
            ..-60 => index += 1,
            -60..=-32 => return (power, ten),
            _ => index -= 1,
        }
    }
}

/// The exponent of two of `10^ten` with a normalized mantissa.
fn exponent_of(ten: i32) -> i32 {
    ((ten * 217_706) >> 16) - 63
}

/// The exponent of ten of the first power.
const FIRST: i32 = -348;
const STEP: i32 = 8;

/// Mantissas of the powers, rounded.
const MANTISSAS: [u64; 87] = [
    0xfa8f_d5a0_081c_0288,
    0xbaae_e17f_a23e_bf76,
    0x8b16_fb20_3055_ac76,
    0xcf42_894a_5dce_35ea,
    0x9a6b_b0aa_5565_3b2d,
    0xe61a_cf03_3d1a_45df,
    0xab70_fe17_c79a_c6ca,
    0xff77_b1fc_bebc_dc4f,
    0xbe56_91ef_416b_d60c,
    0x8dd0_1fad_907f_fc3c,
    0xd351_5c28_3155_9a83,
    0x9d71_ac8f_ada6_c9b5,
    0xea9c_2277_23ee_8bcb,
    0xaecc_4991_4078_536d,
    0x823c_1279_5db6_ce57,
    0xc210_9436_4dfb_5637,
    0x9096_ea6f_3848_984f,
    0xd774_85cb_2582_3ac7,
    0xa086_cfcd_97bf_97f4,
    0xef34_0a98_172a_ace5,
    0xb238_67fb_2a35_b28e,
    0x84c8_d4df_d2c6_3f3b,
    0xc5dd_4427_1ad3_cdba,
    0x936b_9fce_bb25_c996,
    0xdbac_6c24_7d62_a584,
    0xa3ab_6658_0d5f_daf6,
    0xf3e2_f893_dec3_f126,
    0xb5b5_ada8_aaff_80b8,
    0x8762_5f05_6c7c_4a8b,
    0xc9bc_ff60_34c1_3053,
    0x964e_858c_91ba_2655,
    0xdff9_7724_7029_7ebd,
    0xa6df_bd9f_b8e5_b88f,
    0xf8a9_5fcf_8874_7d94,
    0xb944_7093_8fa8_9bcf,
    0x8a08_f0f8_bf0f_156b,
    0xcdb0_2555_6531_31b6,
    0x993f_e2c6_d07b_7fac,
    0xe45c_10c4_2a2b_3b06,
    0xaa24_2499_6973_92d3,
    0xfd87_b5f2_8300_ca0e,
    0xbce5_0864_9211_1aeb,
    0x8cbc_cc09_6f50_88cc,
    0xd1b7_1758_e219_652c,
    0x9c40_0000_0000_0000,
    0xe8d4_a510_0000_0000,
    0xad78_ebc5_ac62_0000,
    0x813f_3978_f894_0984,
    0xc097_ce7b_c907_15b3,
    0x8f7e_32ce_7bea_5c70,
    0xd5d2_38a4_abe9_8068,
    0x9f4f_2726_179a_2245,
    0xed63_a231_d4c4_fb27,
    0xb0de_6538_8cc8_ada8,
    0x83c7_088e_1aab_65db,
    0xc45d_1df9_4271_1d9a,
    0x924d_692c_a61b_e758,
    0xda01_ee64_1a70_8dea,
    0xa26d_a399_9aef_774a,
    0xf209_787b_b47d_6b85,
    0xb454_e4a1_79dd_1877,
    0x865b_8692_5b9b_c5c2,
    0xc835_53c5_c896_5d3d,
    0x952a_b45c_fa97_a0b3,
    0xde46_9fbd_99a0_5fe3,
    0xa59b_c234_db39_8c25,
    0xf6c6_9a72_a398_9f5c,
    0xb7dc_bf53_54e9_bece,
    0x88fc_f317_f222_41e2,
    0xcc20_ce9b_d35c_78a5,
    0x9816_5af3_7b21_53df,
    0xe2a0_b5dc_971f_303a,
    0xa8d9_d153_5ce3_b396,
    0xfb9b_7cd9_a4a7_443c,
    0xbb76_4c4c_a7a4_4410,
    0x8bab_8eef_b640_9c1a,
    0xd01f_ef10_a657_842c,
    0x9b10_a4e5_e991_3129,
    0xe710_9bfb_a19c_0c9d,
    0xac28_20d9_623b_f429,
    0x8044_4b5e_7aa7_cf85,
    0xbf21_e440_03ac_dd2d,
    0x8e67_9c2f_5e44_ff8f,
    0xd433_179d_9c8c_b841,
    0x9e19_db92_b4e3_1ba9,
    0xeb96_bf6e_badf_77d9,
    0xaf87_023b_9bf0_ee6b,
];
