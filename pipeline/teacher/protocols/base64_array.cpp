#include "pipeline/teacher/protocols/base64_array.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace distilld {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Marks a byte that is not a digit. Outside the 24 bits of four digits.
constexpr std::uint32_t kNoDigit = 1U << 31U;

/// For each place in a group of four: the bits that a digit contributes to the 24 bits, in memory byte order. One
/// look-up per digit, without shifts.
using Table = std::array<std::uint32_t, 256>;

constexpr Table make_table(unsigned place) {
    Table table;
    table.fill(kNoDigit);
    for (std::uint32_t value = 0; value < kDigits.size(); ++value) {
        const std::uint32_t bits = value << (18 - 6 * place);
        table[static_cast<unsigned char>(kDigits[value])] = (bits >> 16U) | (bits & 0xFF00U) | ((bits & 0xFFU) << 16U);
    }
    return table;
}

constexpr std::array<Table, 4> kTables{make_table(0), make_table(1), make_table(2), make_table(3)};

std::uint32_t bits_of(const char* group) {
    std::uint32_t bits = 0;
    for (std::size_t place = 0; place < kTables.size(); ++place) {
        bits |= kTables[place][static_cast<unsigned char>(group[place])];
    }
    return bits;
}

std::size_t padding_of(std::string_view text) {
    return text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
}

[[noreturn]] void fail(const std::string& where) {
    throw ErrorException(teacher_error(where + " is not base64"));
}

}  // namespace

std::size_t base64_size(std::string_view text, const std::string& where) {
    if (text.size() % 4 != 0) {
        fail(where);
    }
    return text.size() / 4 * 3 - padding_of(text);
}

void from_base64(std::string_view text, std::byte* bytes, const std::string& where) {
    if (text.empty()) {
        return;
    }
    const std::size_t padding = padding_of(text);
    const char* group = text.data();
    const char* const last = text.data() + text.size() - 4;
    // Each group writes four bytes for its three; the next group, which exists, overwrites the fourth.
    std::uint32_t all = 0;
    for (; group < last; group += 4, bytes += 3) {
        const std::uint32_t bits = bits_of(group);
        all |= bits;
        std::memcpy(bytes, &bits, sizeof bits);
    }
    std::array<char, 4> rest{last[0], last[1], last[2], last[3]};
    for (std::size_t i = 0; i < padding; ++i) {
        rest[3 - i] = 'A';
    }
    const std::uint32_t bits = bits_of(rest.data());
    all |= bits;
    std::memcpy(bytes, &bits, 3 - padding);
    if ((all & kNoDigit) != 0) {
        fail(where);
    }
}

}  // namespace distilld
