#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Arrays of numbers in JSON as base64 of their little-endian bytes.
namespace distilld {

/// Number of bytes of a base64 text. Throws (ErrorKind::teacher), naming `where`, if it cannot be base64.
[[nodiscard]] std::size_t base64_size(std::string_view text, const std::string& where);

/// Writes base64_size(text) bytes to `bytes`. Throws likewise if the text is not base64.
void from_base64(std::string_view text, std::byte* bytes, const std::string& where);

/// The bytes as elements. Throws likewise if they are not a whole number of elements.
template <class Element>
[[nodiscard]] std::vector<Element> base64_elements(std::string_view text, const std::string& where) {
    const std::size_t size = base64_size(text, where);
    if (size % sizeof(Element) != 0) {
        throw ErrorException(
            teacher_error(where + " does not hold whole numbers of " + std::to_string(sizeof(Element)) + " bytes"));
    }
    std::vector<Element> elements(size / sizeof(Element));
    from_base64(text, reinterpret_cast<std::byte*>(elements.data()), where);
    return elements;
}

}  // namespace distilld
