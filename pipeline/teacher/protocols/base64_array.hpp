#pragma once

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Arrays of numbers that travel in JSON as base64 of their little-endian bytes.
namespace distilld {

/// The bytes that a base64 text stands for. Throws (ErrorKind::teacher) naming `where` when it is none.
[[nodiscard]] std::vector<std::byte> from_base64(std::string_view text, const std::string& where);

/// The same as elements. Throws likewise when the bytes are not whole elements.
template <class Element>
[[nodiscard]] std::vector<Element> base64_elements(std::string_view text, const std::string& where) {
    const std::vector<std::byte> bytes = from_base64(text, where);
    if (bytes.size() % sizeof(Element) != 0) {
        throw ErrorException(
            teacher_error(where + " does not hold whole numbers of " + std::to_string(sizeof(Element)) + " bytes"));
    }
    std::vector<Element> elements(bytes.size() / sizeof(Element));
    if (!bytes.empty()) {
        std::memcpy(elements.data(), bytes.data(), bytes.size());
    }
    return elements;
}

}  // namespace distilld
