#pragma once

#include <simdjson.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "net/body_buffer.hpp"

/// Reads a JSON answer directly from its body. For the .cpp files of protocols, because it includes simdjson.
namespace distilld {

[[noreturn]] inline void fail_answer(std::string message) {
    throw ErrorException(teacher_error(std::move(message)));
}

/// The array, or a failure that names it. `value`: a simdjson value, or a result that may hold one. `where`: its name,
/// or a function that makes the name, for use in loops.
template <class Value, class Where>
[[nodiscard]] simdjson::ondemand::array json_array(Value value, const Where& where) {
    simdjson::ondemand::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) {
        if constexpr (std::is_invocable_v<Where>) {
            fail_answer(where() + " is not an array");
        } else {
            fail_answer(where + std::string(" is not an array"));
        }
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

/// Idle parsers with their index memory, to avoid new allocations. Any thread.
class JsonParsers {
  public:
    [[nodiscard]] std::unique_ptr<simdjson::ondemand::parser> take() {
        const std::lock_guard lock(mutex_);
        if (idle_.empty()) {
            return std::make_unique<simdjson::ondemand::parser>();
        }
        auto parser = std::move(idle_.back());
        idle_.pop_back();
        return parser;
    }
    /// A parser that has read a very large answer is freed: its index may be as large as the answer.
    void give_back(std::unique_ptr<simdjson::ondemand::parser> parser) {
        const std::lock_guard lock(mutex_);
        if (parser->capacity() <= kMaxKept) {
            idle_.push_back(std::move(parser));
        }
    }

  private:
    static constexpr std::size_t kMaxKept = std::size_t{32} << 20U;  // bytes of an answer

    std::mutex mutex_;
    std::vector<std::unique_ptr<simdjson::ondemand::parser>> idle_;  // at most as many as were in use at once
};

/// A parser until the end of a block.
class LentParser {
  public:
    explicit LentParser(JsonParsers& from) : from_(from), parser_(from.take()) {}
    ~LentParser() { from_.give_back(std::move(parser_)); }
    LentParser(const LentParser&) = delete;
    LentParser& operator=(const LentParser&) = delete;

    simdjson::ondemand::parser* operator->() const noexcept { return parser_.get(); }

  private:
    JsonParsers& from_;
    std::unique_ptr<simdjson::ondemand::parser> parser_;
};

/// Calls `read(document)` on a body; its fail_answer() and simdjson's exceptions become errors.
template <class Read>
[[nodiscard]] auto read_json_answer(const BodyBuffer& body, JsonParsers& parsers, Read read)
    -> Result<decltype(read(std::declval<simdjson::ondemand::document&>()))> {
    try {
        const simdjson::padded_string_view json(reinterpret_cast<const char*>(body.data()), body.size(),
                                                body.size() + BodyBuffer::kPadding);
        const LentParser parser(parsers);
        simdjson::ondemand::document document = parser->iterate(json);
        return read(document);
    } catch (const ErrorException& error) {
        return error.error();
    } catch (const simdjson::simdjson_error& error) {
        return teacher_error(std::string("the answer is not valid JSON: ") + error.what());
    }
}

}  // namespace distilld
