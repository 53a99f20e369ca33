#include "pipeline/teacher/protocols/number_text.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace distilld {
namespace {

bool is_digit(const char* at) noexcept {
    return static_cast<unsigned char>(*at) - unsigned{'0'} <= 9;
}

/// The first byte after the digits at `at`; null if there are none.
const char* skip_digits(const char* at) noexcept {
    if (!is_digit(at)) {
        return nullptr;
    }
    while (is_digit(at)) {
        ++at;
    }
    return at;
}

/// The first byte after the number; null if there is none. std::from_chars accepts more than JSON does.
const char* end_of_number(const char* at) noexcept {
    at += *at == '-' ? 1 : 0;
    const bool zero = *at == '0';
    const char* const integer = at;
    at = skip_digits(at);
    if (at == nullptr || (zero && at - integer > 1)) {
        return nullptr;
    }
    if (*at == '.') {
        at = skip_digits(at + 1);
        if (at == nullptr) {
            return nullptr;
        }
    }
    if (*at == 'e' || *at == 'E') {
        ++at;
        at += *at == '-' || *at == '+' ? 1 : 0;
        at = skip_digits(at);
    }
    return at;
}

/// Whether a number that is out of range is too small rather than too large.
bool is_tiny(const char* at, const char* end) noexcept {
    at += *at == '-' ? 1 : 0;
    const char* const point = skip_digits(at);
    std::int64_t magnitude = *at == '0' ? 0 : point - at;  // digits before the point, or minus the zeros after it
    const char* const exponent = std::find_if(point, end, [](char c) { return c == 'e' || c == 'E'; });
    if (*at == '0' && *point == '.') {
        magnitude -= std::find_if(point + 1, exponent, [](char c) { return c != '0'; }) - (point + 1);
    }
    std::int64_t shift = 0;
    if (exponent != end) {
        const char* const sign = exponent + 1;
        const auto parsed = std::from_chars(sign + (*sign == '+' ? 1 : 0), end, shift);
        if (parsed.ec == std::errc::result_out_of_range) {
            return *sign == '-';
        }
    }
    return shift < -magnitude;
}

}  // namespace

const char* read_exact_double(const char* at, const char* end, double& value) noexcept {
    const char* const behind = end_of_number(at);
    if (behind == nullptr || behind > end) {
        return nullptr;
    }
    const auto parsed = std::from_chars(at, behind, value);
    if (parsed.ec == std::errc::result_out_of_range && is_tiny(at, behind)) {
        value = *at == '-' ? -0.0 : 0.0;
        return behind;
    }
    return parsed.ec == std::errc() ? behind : nullptr;
}

}  // namespace distilld
