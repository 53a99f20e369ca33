#include "server/teacher/completion_request.hpp"

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <limits>
#include <string_view>
#include <utility>

#include "api/kinds/object_fields.hpp"
#include "base/json_text.hpp"

namespace distilld::teacher {
namespace {

namespace json = boost::json;
using api::Violation;

constexpr std::uint32_t kMaxTokens = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxMessages = 4096;
constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopIds = 256;

/// A field that is not supported, and the value that it may have all the same.
struct Neutral {
    const char* name;
    const char* value;  ///< JSON
};
constexpr std::array kNeutral{
    Neutral{"frequency_penalty", "0"},
    Neutral{"presence_penalty", "0"},
    Neutral{"repetition_penalty", "1"},
    Neutral{"length_penalty", "1"},
    Neutral{"min_p", "0"},
    Neutral{"min_tokens", "0"},
    Neutral{"best_of", "1"},
    Neutral{"logit_bias", "{}"},
    Neutral{"suffix", R"("")"},
    Neutral{"tools", "[]"},
    Neutral{"tool_choice", R"("none")"},
    Neutral{"response_format", R"({"type":"text"})"},
    Neutral{"use_beam_search", "false"},
    Neutral{"include_stop_str_in_output", "false"},
    Neutral{"continue_final_message", "false"},
    Neutral{"spaces_between_special_tokens", "true"},
};
/// Fields that concern OpenAI's accounts.
constexpr std::array kIgnored{
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"};

bool same_value(const json::value& a, const json::value& b) {
    return a.is_number() && b.is_number() ? a.to_number<double>() == b.to_number<double>() : a == b;
}

using Field = api::ObjectField<CompletionRequest>;

/// -1 means all, as 0 does.
api::FieldKind<CompletionRequest> top_k_field() {
    const auto to = [](const CompletionRequest& request) -> json::value { return std::uint64_t{request.top_k}; };
    const auto from = [](CompletionRequest& request, const json::value& kept) {
        request.top_k = static_cast<std::uint32_t>(std::max<std::int64_t>(0, kept.to_number<std::int64_t>()));
    };
    return api::make_field<CompletionRequest>(api::integer_kind({-1, kMaxTokens}), to, from);
}

/// Any integer of 64 bits.
api::FieldKind<CompletionRequest> seed_field() {
    const auto to = [](const CompletionRequest&) -> json::value { return nullptr; };
    const auto from = [](CompletionRequest& request, const json::value& kept) {
        request.seed = kept.is_uint64() ? kept.get_uint64() : static_cast<std::uint64_t>(kept.get_int64());
    };
    return api::make_field<CompletionRequest>(api::integer_kind({std::numeric_limits<std::int64_t>::min()}), to, from);
}

std::vector<Field> common_fields() {
    using Asked = CompletionRequest;
    const api::ListRange stops{
        .text = {.max_bytes = 256, .may_break_lines = true}, .max_count = kMaxStops, .one_alone = true};
    return {{"model", api::make_text(&Asked::model, {.max_bytes = 256, .may_be_empty = true})},
            {"max_tokens", api::make_integer(&Asked::max_tokens, {0, kMaxTokens})},
            {"n", api::make_integer(&Asked::n, {1, kMaxAnswers})},
            {"temperature", api::make_number(&Asked::temperature, {0, 100})},
            {"top_p", api::make_number(&Asked::top_p, {0, 1, api::Ends::open_min})},
            {"top_k", top_k_field()},
            {"seed", seed_field()},
            {"stop", api::make_texts(&Asked::stop, stops)},
            {"ignore_eos", api::make_boolean(&Asked::ignore_eos)},
            {"stream", api::make_boolean(&Asked::stream)},
            {"return_token_ids", api::make_boolean(&Asked::return_token_ids)},
            {"skip_special_tokens", api::make_boolean(&Asked::skip_special_tokens)},
            {"add_special_tokens", api::make_boolean(&Asked::add_special_tokens)}};
}

class CompletionReader {
  public:
    CompletionReader(json::object body, bool chat) : body_(std::move(body)) {
        request_.chat = chat;
        request_.add_special_tokens = !chat;
        // Clients send null for members that they leave out.
        for (auto member = body_.begin(); member != body_.end();) {
            member = member->value().is_null() ? body_.stable_erase(member) : member + 1;
        }
    }

    Read<CompletionRequest> read() {
        std::vector<Field> fields = common_fields();
        if (request_.chat) {
            using Asked = CompletionRequest;
            fields.push_back({"max_completion_tokens", api::make_integer(&Asked::max_tokens, {0, kMaxTokens})});
            fields.push_back({"add_generation_prompt", api::make_boolean(&Asked::add_generation_prompt)});
        } else {
            fields.push_back({"echo", api::make_boolean(&CompletionRequest::echo)});
        }
        take_unsupported();
        take_prompts();
        take_stop_ids();
        take_logprobs();
        take_objects();
        api::read_fields(body_, fields, request_, violations_);
        if (request_.max_tokens == 0U && !request_.echo) {
            violate("/max_tokens", "out_of_range", "0 takes \"echo\": true: there is nothing else to answer");
        }
        const std::size_t prompts = request_.chat ? 1 : request_.prompts.size();
        if (prompts * request_.n > kMaxAnswers) {
            violate("/n", "out_of_range",
                    std::to_string(prompts) + " prompts with " + std::to_string(request_.n) +
                        " answers each: a request may have " + std::to_string(kMaxAnswers) + " answers");
        }
        if (!violations_.empty()) {
            return violations_.front();
        }
        return std::move(request_);
    }

  private:
    void violate(std::string pointer, std::string code, std::string detail) {
        violations_.push_back({std::move(pointer), std::move(code), std::move(detail)});
    }
    /// Takes a member out of the body.
    std::optional<json::value> take(std::string_view name) {
        const auto found = body_.find(name);
        if (found == body_.end()) {
            return std::nullopt;
        }
        json::value value = std::move(found->value());
        body_.stable_erase(found);
        return value;
    }
    void take_unsupported() {
        for (const char* name : kIgnored) {
            body_.erase(name);
        }
        for (const Neutral& field : kNeutral) {
            const auto value = take(field.name);
            if (value && !same_value(*value, json::parse(field.value))) {
                violate("/" + std::string(field.name), "unsupported",
                        "is not supported: leave it out, or give " + std::string(field.value));
            }
        }
    }
    /// A list of token ids, or nullopt, which is reported.
    std::optional<std::vector<std::int32_t>> ids_of(const json::value& value, const std::string& pointer) {
        const json::array* list = value.if_array();
        if (list == nullptr) {
            api::FieldReport{pointer, violations_}.wrong_type("a list of token ids", value);
            return std::nullopt;
        }
        std::vector<std::int32_t> ids;
        ids.reserve(list->size());
        for (const json::value& id : *list) {
            if (!id.is_int64() || !std::in_range<std::int32_t>(id.get_int64()) || id.get_int64() < 0) {
                violate(pointer + "/" + std::to_string(ids.size()), "invalid_value",
                        to_text(id) + " is not a token id");
                return std::nullopt;
            }
            ids.push_back(static_cast<std::int32_t>(id.get_int64()));
        }
        return ids;
    }
    /// A text or a list of token ids.
    void add_prompt(const json::value& value, const std::string& pointer) {
        if (const json::string* text = value.if_string()) {
            request_.prompts.push_back({.text = std::string(*text)});
        } else if (auto ids = ids_of(value, pointer)) {
            request_.prompts.push_back({.ids = std::move(*ids)});
        }
    }
    void take_prompts() {
        const auto value = take(request_.chat ? "messages" : "prompt");
        const std::string pointer = request_.chat ? "/messages" : "/prompt";
        if (!value) {
            violate(pointer, "required",
                    request_.chat ? "is required: a list of {role, content}"
                                  : "is required: a text, a list of token ids, or a list of either");
            return;
        }
        const json::array* list = value->if_array();
        if (request_.chat) {
            take_messages(list, *value);
        } else if (list == nullptr || list->empty() || list->front().is_number()) {
            add_prompt(*value, pointer);
        } else if (list->size() > kMaxAnswers) {
            violate(
                pointer, "out_of_range",
                "has " + std::to_string(list->size()) + " prompts: a request may have " + std::to_string(kMaxAnswers));
        } else {
            for (std::size_t i = 0; i < list->size() && violations_.empty(); ++i) {
                add_prompt((*list)[i], pointer + "/" + std::to_string(i));
            }
        }
    }
    void take_messages(const json::array* list, const json::value& value) {
        if (list == nullptr || list->empty() || list->size() > kMaxMessages) {
            api::FieldReport{"/messages", violations_}.wrong_type(
                "a list of 1 to " + std::to_string(kMaxMessages) + " objects {role, content}", value);
            return;
        }
        for (const json::value& one : *list) {
            const std::string pointer = "/messages/" + std::to_string(request_.messages.size());
            const json::object* message = one.if_object();
            const json::value* role = message != nullptr ? message->if_contains("role") : nullptr;
            if (role == nullptr || !role->is_string()) {
                violate(pointer, "invalid_value", "an object {role, content} is expected");
                return;
            }
            json::object kept = *message;
            if (auto* content = kept.if_contains("content"); content != nullptr && content->is_array()) {
                auto text = joined_texts(content->get_array());
                if (!text) {
                    violate(pointer + "/content", "unsupported", "only parts of type \"text\" are supported");
                    return;
                }
                *content = std::move(*text);
            }
            request_.messages.push_back(std::move(kept));
        }
    }
    static std::optional<json::string> joined_texts(const json::array& parts) {
        json::string text;
        for (const json::value& part : parts) {
            const json::object* object = part.if_object();
            const json::value* type = object != nullptr ? object->if_contains("type") : nullptr;
            const json::value* piece = object != nullptr ? object->if_contains("text") : nullptr;
            if (type == nullptr || *type != "text" || piece == nullptr || !piece->is_string()) {
                return std::nullopt;
            }
            text += piece->get_string();
        }
        return text;
    }
    void take_stop_ids() {
        const auto value = take("stop_token_ids");
        auto ids = value ? ids_of(*value, "/stop_token_ids") : std::vector<std::int32_t>();
        if (ids && ids->size() > kMaxStopIds) {
            violate("/stop_token_ids", "out_of_range", "at most " + std::to_string(kMaxStopIds) + " are taken");
        } else if (ids) {
            request_.stop_token_ids = std::move(*ids);
        }
    }
    void take_logprobs() {
        const auto wanted = take("logprobs");
        const auto top = request_.chat ? take("top_logprobs") : std::nullopt;
        const json::value* count = request_.chat ? (top ? &*top : nullptr) : (wanted ? &*wanted : nullptr);
        if (request_.chat && wanted && !wanted->is_bool()) {
            violate("/logprobs", "wrong_type", "true or false is expected; \"top_logprobs\" is a number");
            return;
        }
        if (count != nullptr && !(count->is_int64() && count->get_int64() >= 0 && count->get_int64() <= kMaxLogprobs)) {
            violate(request_.chat ? "/top_logprobs" : "/logprobs", "out_of_range",
                    "a whole number from 0 to " + std::to_string(kMaxLogprobs) + " is expected");
            return;
        }
        const bool given = request_.chat ? wanted && wanted->get_bool() : count != nullptr;
        if (!given && count != nullptr) {
            violate("/top_logprobs", "conflict", "takes \"logprobs\": true");
        } else if (given) {
            request_.logprobs = count != nullptr ? static_cast<std::uint32_t>(count->get_int64()) : 0;
        }
    }
    void take_objects() {
        if (const auto options = take("stream_options")) {
            const json::object* object = options->if_object();
            const json::value* usage = object != nullptr ? object->if_contains("include_usage") : nullptr;
            if (object == nullptr || (usage != nullptr && !usage->is_bool())) {
                violate("/stream_options", "wrong_type", R"(an object is expected: {"include_usage": true})");
            }
            request_.include_usage = usage != nullptr && usage->is_bool() && usage->get_bool();
        }
        if (const auto arguments = request_.chat ? take("chat_template_kwargs") : std::nullopt) {
            if (const json::object* object = arguments->if_object()) {
                request_.template_arguments = *object;
            } else {
                api::FieldReport{"/chat_template_kwargs", violations_}.wrong_type("an object", *arguments);
            }
        }
    }

    json::object body_;
    CompletionRequest request_;
    std::vector<Violation> violations_;
};

}  // namespace

Read<CompletionRequest> read_completion(json::object body) {
    return CompletionReader(std::move(body), false).read();
}

Read<CompletionRequest> read_chat(json::object body) {
    return CompletionReader(std::move(body), true).read();
}

Read<AdapterRequest> read_adapter(const json::object& body, bool with_folder) {
    std::vector<api::ObjectField<AdapterRequest>> fields{
        {"lora_name", api::make_text(&AdapterRequest::name, {.max_bytes = 256}), true}};
    if (with_folder) {
        fields.push_back({"lora_path", api::make_path(&AdapterRequest::folder, api::PathUse::reads, "folder"), true});
    }
    AdapterRequest request;
    std::vector<Violation> violations;
    api::read_fields(body, fields, request, violations, {"lora_int_id", "base_model_name"});
    return violations.empty() ? Read<AdapterRequest>(std::move(request)) : violations.front();
}

Read<WeightsRequest> read_weights(const json::object& body) {
    const std::vector<api::ObjectField<WeightsRequest>> fields{
        {"model_path", api::make_path(&WeightsRequest::folder, api::PathUse::reads, "folder"), true},
        {"weight_version", api::make_text(&WeightsRequest::version, {.max_bytes = 256}), false}};
    WeightsRequest request;
    std::vector<Violation> violations;
    api::read_fields(body, fields, request, violations, {"load_format", "flush_cache", "abort_all_requests"});
    return violations.empty() ? Read<WeightsRequest>(std::move(request)) : violations.front();
}

Read<CompletionRequest> read_tokenize(json::object body) {
    body.erase("return_token_strs");
    const bool chat = body.contains("messages");
    return CompletionReader(std::move(body), chat).read();
}

Read<std::vector<std::int32_t>> read_detokenize(json::object body) {
    const auto* tokens = body.if_contains("tokens");
    json::object prompt{{"prompt", tokens != nullptr ? *tokens : json::value(json::array())}};
    auto request = read_completion(std::move(prompt));
    if (!request || request->prompts.size() != 1 || request->prompts.front().text) {
        return Violation{"/tokens", "invalid_value", "a list of token ids is expected"};
    }
    return std::move(request->prompts.front().ids);
}

}  // namespace distilld::teacher
