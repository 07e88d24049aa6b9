// SPDX-License-Identifier: Apache-2.0
// Family digest: CRC-32 of the codes of all 2^32 F32 values, 512 chunks by sign and exponent.
// Arguments: FIRST STEP LIMIT: chunks FIRST, FIRST + STEP, ... on the best SIMD target up to LIMIT (enum Simd);
// STEP 0: the chunks where codes change, and the ends.
#include <cstdlib>

#include "kernel.h"

using namespace golden;

static uint32_t g_tables[16][256];
static int64_t g_first = 0, g_step = 0;

static bool chosen(int64_t chunk) {
  if (g_step) return chunk >= g_first && (chunk - g_first) % g_step == 0;
  const int64_t exponent = chunk & 255;
  return (exponent >= 109 && exponent <= 143) || exponent == 0 || exponent >= 254;
}

static void make_tables() {  // zlib's polynomial, 16 bytes a step
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c >> 1) ^ (c & 1 ? 0xedb88320u : 0);
    g_tables[0][i] = c;
  }
  for (int t = 1; t < 16; ++t)
    for (uint32_t i = 0; i < 256; ++i)
      g_tables[t][i] = (g_tables[t - 1][i] >> 8) ^ g_tables[0][g_tables[t - 1][i] & 255];
}

static uint32_t crc32(uint32_t crc, const uint8_t *p, int64_t n) {
  for (; n >= 16; n -= 16, p += 16) {
    uint32_t w[4];
    std::memcpy(w, p, 16);
    w[0] ^= crc;
    crc = 0;
    for (int k = 0; k < 4; ++k)
      for (int b = 0; b < 4; ++b) crc ^= g_tables[15 - 4 * k - b][(w[k] >> (8 * b)) & 255];
  }
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ g_tables[0][(crc ^ *p) & 255];
  return crc;
}

static void digest(void **) {
  make_tables();
  const uint8_t check[] = "123456789";
  assert_int_equal(crc32(0xffffffffu, check, 9) ^ 0xffffffffu, 0xcbf43926u);
  const Case c = cases("digest").front();
  constexpr int64_t kChunk = int64_t{1} << 23, kPiece = 1 << 14;
  std::vector<float> x(kPiece);
  std::vector<uint8_t> codes(kPiece);
  int64_t bad = 0, chunks = 0;
  const Array want[4] = {c.output("e4m3_sat"), c.output("e4m3_nosat"), c.output("e5m2_sat"), c.output("e5m2_nosat")};
  for (int64_t chunk = 0; chunk < 512; ++chunk) {
    if (!chosen(chunk)) continue;
    ++chunks;
    uint32_t crc[4] = {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu};
    for (int64_t i = 0; i < kChunk; i += kPiece) {
      for (int64_t k = 0; k < kPiece; ++k) x[size_t(k)] = num::float_of(uint32_t(chunk * kChunk + i + k));
      for (int m = 0; m < 4; ++m) {
        const int32_t f = m < 2 ? num::kE4M3 : num::kE5M2;
        cpu::cast(ops::Cast{matrix(x.data(), num::kF32, 1, kPiece), matrix(codes.data(), f, 1, kPiece), nullptr,
                            m % 2 == 0, 0},
                  {});
        crc[m] = crc32(crc[m], codes.data(), kPiece);
      }
    }
    for (int m = 0; m < 4; ++m) {
      const bool equal = (crc[m] ^ 0xffffffffu) == want[m].as<uint32_t>()[chunk];
      if (!equal) std::fprintf(stderr, "chunk %lld, mode %d differs\n", (long long)chunk, m);
      bad += !equal;
    }
  }
  std::printf("digest: %lld chunks of 2^23, 4 modes, on %s\n", (long long)chunks, cpu::tile_ops().name);
  assert_int_equal(bad, 0);
}

int main(int argc, char **argv) {
  if (argc == 4) {
    g_first = std::atoll(argv[1]);
    g_step = std::atoll(argv[2]);
    cpu::force_simd(static_cast<cpu::Simd>(std::atoi(argv[3])));
  }
  const CMUnitTest tests[] = {cmocka_unit_test(digest)};
  return cmocka_run_group_tests_name("golden.digest", tests, nullptr, nullptr);
}
