#include "pipeline/data/tokenizer/post_processor.hpp"

#include <boost/json/array.hpp>
#include <string_view>
#include <utility>

#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

bool is_id(const json::value& value) {
    return value.is_int64() && value.get_int64() >= 0 && value.get_int64() < kMaxSpecialId;
}

Result<TokenFrame> read_sequence(const json::value& component) {
    const auto frames = read_listed("post_processor", "processors", read_post_processor, component);
    if (!frames) {
        return frames.error();
    }
    TokenFrame whole;
    for (const TokenFrame& frame : *frames) {
        // Each frame encloses the frames before it.
        whole.before.insert(whole.before.begin(), frame.before.begin(), frame.before.end());
        whole.behind.insert(whole.behind.end(), frame.behind.begin(), frame.behind.end());
    }
    return whole;
}

/// component["special_tokens"][name]["ids"]
Result<std::vector<std::int32_t>> ids_of(const json::value& component, std::string_view name) {
    const json::value* all = member_of(component.get_object(), "special_tokens");
    const json::value* token = all != nullptr && all->is_object() ? member_of(all->get_object(), name) : nullptr;
    const json::value* ids = token != nullptr && token->is_object() ? member_of(token->get_object(), "ids") : nullptr;
    std::vector<std::int32_t> read;
    for (const json::value& id : ids != nullptr && ids->is_array() ? ids->get_array() : json::array{nullptr}) {
        if (!is_id(id)) {
            return not_understood("special_tokens[\"" + std::string(name) + "\"] of post_processor", component);
        }
        read.push_back(static_cast<std::int32_t>(id.get_int64()));
    }
    return read;
}

/// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
Result<TokenFrame> read_template(const json::value& component) {
    const json::value* single = member_of(component.get_object(), "single");
    TokenFrame frame;
    bool seen_text = false;
    for (const json::value& piece : single != nullptr && single->is_array() ? single->get_array() : json::array()) {
        const json::object* object = piece.if_object();
        const json::value* special = object != nullptr ? member_of(*object, "SpecialToken") : nullptr;
        const json::value* text = object != nullptr ? member_of(*object, "Sequence") : nullptr;
        if (special != nullptr) {
            const Result<std::string> name = text_of(*special, "id");
            if (!name) {
                return name.error();
            }
            const Result<std::vector<std::int32_t>> ids = ids_of(component, *name);
            if (!ids) {
                return ids.error();
            }
            std::vector<std::int32_t>& side = seen_text ? frame.behind : frame.before;
            side.insert(side.end(), ids->begin(), ids->end());
        } else if (text != nullptr && !std::exchange(seen_text, true)) {
            continue;
        } else {
            return not_understood("post_processor", component);
        }
    }
    if (!seen_text) {
        return not_understood("post_processor", component);
    }
    return frame;
}

/// {"cls": ["<s>", 0], "sep": ["</s>", 2]}
Result<TokenFrame> read_pair(const json::value& component) {
    TokenFrame frame;
    const std::pair<std::string_view, std::vector<std::int32_t>*> sides[] = {{"cls", &frame.before},
                                                                             {"sep", &frame.behind}};
    for (const auto& [name, side] : sides) {
        const json::value* token = member_of(component.get_object(), name);
        if (token == nullptr || !token->is_array() || token->get_array().size() != 2 || !is_id(token->get_array()[1])) {
            return not_understood("post_processor", component);
        }
        side->push_back(static_cast<std::int32_t>(token->get_array()[1].get_int64()));
    }
    return frame;
}

constexpr ComponentRow<TokenFrame> kPostProcessors[] = {
    {"Sequence", read_sequence},
    {"ByteLevel", [](const json::value&) -> Result<TokenFrame> { return TokenFrame(); }},
    {"TemplateProcessing", read_template},
    {"RobertaProcessing", read_pair},
    {"BertProcessing", read_pair},
};

}  // namespace

Result<TokenFrame> read_post_processor(const json::value& component) {
    return read_component<TokenFrame>("post_processor", kPostProcessors, component);
}

}  // namespace distilld
