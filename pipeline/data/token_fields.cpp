#include "pipeline/data/token_fields.hpp"

#include <limits>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

namespace dom = simdjson::dom;

std::string type_name(dom::element element) {
    switch (element.type()) {
        case dom::element_type::ARRAY:
            return "an array";
        case dom::element_type::OBJECT:
            return "an object";
        case dom::element_type::STRING:
            return "a string";
        case dom::element_type::BOOL:
            return "a boolean";
        case dom::element_type::NULL_VALUE:
            return "null";
        default:
            return "a number";
    }
}

Result<void> read_token_ids(std::string_view name, dom::element element, const TokenField& field,
                            std::vector<std::int32_t>& out) {
    dom::array array;
    const std::string quoted = "\"" + std::string(name) + "\"";
    if (element.get(array)) {
        return invalid_input(quoted + " is " + type_name(element) + ", expected an array of integers");
    }
    for (const dom::element entry : array) {
        const auto where = [&] { return std::string(name) + "[" + std::to_string(out.size()) + "]"; };
        std::int64_t value = 0;
        if (!entry.is_int64() || entry.get(value)) {
            return invalid_input(where() + " is " + (entry.is_number() ? "no 64-bit integer" : type_name(entry)) +
                                 ", expected a token id");
        }
        if (value == kIgnoredLabel && field.may_be_ignored) {
            out.push_back(kIgnoredLabel);
            continue;
        }
        if (value < 0 || value > std::numeric_limits<std::int32_t>::max()) {
            return invalid_input(where() + " is " + std::to_string(value) + ", not a token id" +
                                 (field.may_be_ignored ? " and not -100 (no loss)" : ""));
        }
        if (field.vocabulary_size != 0 && value >= field.vocabulary_size) {
            return invalid_input(where() + " is " + std::to_string(value) + ", outside the vocabulary of " +
                                 std::to_string(field.vocabulary_size));
        }
        out.push_back(static_cast<std::int32_t>(value));
    }
    return {};
}

// Padding inside the data would be trained on: rows are padded here, after cutting.
Result<void> check_attention_mask(dom::element element) {
    dom::array array;
    if (element.get(array)) {
        return {};
    }
    for (const dom::element entry : array) {
        std::int64_t value = 0;
        if (!entry.get(value) && value == 0) {
            return invalid_input("\"attention_mask\" holds zeros: give the tokens without padding");
        }
    }
    return {};
}

}  // namespace distilld
