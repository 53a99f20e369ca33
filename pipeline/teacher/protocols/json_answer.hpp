#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/transport/body_buffer.hpp"

/// Reading a JSON answer straight out of its body. For the .cpp files of protocols: it brings simdjson along.
namespace distilld {

[[noreturn]] inline void fail_answer(std::string message) {
    throw ErrorException(teacher_error(std::move(message)));
}

/// The array, or a failure that names it. `value`: a simdjson value, or the result that may hold one.
template <class Value>
[[nodiscard]] simdjson::ondemand::array json_array(Value value, const std::string& where) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) {
        fail_answer(where + " is not an array");
    }
    return array;
}

/// The numbers of an array, read as Number (double, std::int64_t, std::uint64_t).
template <class Element, class Number>
[[nodiscard]] std::vector<Element> json_numbers(simdjson::ondemand::value value, const std::string& where) {
    std::vector<Element> elements;
    for (auto item : json_array(value, where)) {
        Number number{};
        if (item.get(number) != simdjson::SUCCESS) {
            fail_answer(where + " holds something that is not a number");
        }
        elements.push_back(static_cast<Element>(number));
    }
    return elements;
}

/// A string; it lives as long as the document.
[[nodiscard]] inline std::string_view json_text(simdjson::ondemand::value value, const std::string& where) {
    std::string_view text;
    if (value.get_string().get(text) != simdjson::SUCCESS) {
        fail_answer(where + " is not a string");
    }
    return text;
}

/// Calls `read(document)` on a body; its fail_answer() and simdjson's exceptions become errors.
template <class Read>
[[nodiscard]] auto read_json_answer(const BodyBuffer& body, Read read)
    -> Result<decltype(read(std::declval<simdjson::ondemand::document&>()))> {
    try {
        const simdjson::padded_string_view json(reinterpret_cast<const char*>(body.data()), body.size(),
                                                body.size() + BodyBuffer::kPadding);
        simdjson::ondemand::parser parser;
        simdjson::ondemand::document document = parser.iterate(json);
        return read(document);
    } catch (const ErrorException& error) {
        return error.error();
    } catch (const simdjson::simdjson_error& error) {
        return teacher_error(std::string("the answer is not valid JSON: ") + error.what());
    }
}

}  // namespace distilld
