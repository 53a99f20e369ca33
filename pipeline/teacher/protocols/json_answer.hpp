#pragma once

#include <simdjson.h>

#include <string>
#include <utility>

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
