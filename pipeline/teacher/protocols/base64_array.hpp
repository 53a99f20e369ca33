#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Arrays of numbers that travel in JSON as base64 of their little-endian bytes.
namespace distilld {

/// How many bytes a base64 text stands for. Throws (ErrorKind::teacher) naming `where` when it cannot be base64.
[[nodiscard]] std::size_t base64_size(std::string_view text, const std::string& where);

/// Writes them to `bytes`, base64_size(text) of them. Throws likewise when the text is no base64.
void from_base64(std::string_view text, std::byte* bytes, const std::string& where);

/// The bytes as elements. Throws likewise when they are not whole elements.
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
