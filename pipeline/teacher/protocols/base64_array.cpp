#include "pipeline/teacher/protocols/base64_array.hpp"

#include <openssl/evp.h>

#include <limits>

namespace distilld {

std::vector<std::byte> from_base64(std::string_view text, const std::string& where) {
    constexpr auto kMaxText = static_cast<std::size_t>(std::numeric_limits<int>::max());
    std::vector<std::byte> bytes;
    int decoded = -1;
    if (text.size() <= kMaxText && text.size() % 4 == 0) {
        bytes.resize(text.size() / 4 * 3);
        decoded = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                  reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
    }
    if (decoded < 0) {
        throw ErrorException(teacher_error(where + " is no base64"));
    }
    // EVP_DecodeBlock counts the padding as zeros.
    const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    bytes.resize(static_cast<std::size_t>(decoded) - padding);
    return bytes;
}

}  // namespace distilld
