#include "server/teacher/completion_answer.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "base/json_text.hpp"

namespace distilld::teacher {
namespace {

namespace json = boost::json;
using models::GenerationStep;
using models::SaidToken;

std::size_t code_points(std::string_view text) {
    return static_cast<std::size_t>(
        std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

json::array ids_of(const std::vector<std::int32_t>& ids) {
    return json::array(ids.begin(), ids.end());
}

/// OpenAI names the token itself too if it is not among the likeliest.
std::vector<models::TopEntry> with_itself(const SaidToken& token) {
    std::vector<models::TopEntry> top = token.top;
    const auto id = static_cast<std::uint32_t>(token.id);
    if (std::ranges::find(top, id, &models::TopEntry::id) == top.end()) {
        top.push_back({token.logprob, id});
    }
    return top;
}

}  // namespace

std::vector<models::GenerationRequest> CompletionPlan::sequences(std::uint64_t seed) const {
    std::vector<models::GenerationRequest> made;
    for (const Prompt& prompt : asked.prompts) {
        for (std::uint32_t answer = 0; answer < asked.n; ++answer) {
            models::GenerationRequest& one = made.emplace_back();
            one.prompt = prompt.ids;
            one.max_tokens = max_tokens;
            one.choice = {asked.temperature, asked.top_k, asked.top_p, seed, answer};
            one.stop_ids = asked.stop_token_ids;
            if (!asked.ignore_eos) {
                one.stop_ids.insert(one.stop_ids.end(), end_ids.begin(), end_ids.end());
            }
            one.top_logprobs = asked.logprobs.value_or(0);
            one.echo = asked.echo && asked.logprobs;
            one.adapter = adapter;
        }
    }
    return made;
}

CompletionAnswer::CompletionAnswer(CompletionPlan plan, const Tokenizer* tokenizer)
    : plan_(std::move(plan)), tokenizer_(tokenizer), choices_(plan_.asked.prompts.size() * plan_.asked.n) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        begin(i / plan_.asked.n, choices_[i]);
    }
}

void CompletionAnswer::begin(std::size_t prompt, Choice& choice) {
    const Prompt& asked = plan_.asked.prompts[prompt];
    if (tokenizer_ != nullptr) {
        choice.text.emplace(*tokenizer_, asked.ids, plan_.asked.stop, plan_.asked.skip_special_tokens);
    }
    if (!plan_.asked.echo) {
        return;
    }
    if (asked.text) {
        choice.unsent = *asked.text;
    } else if (tokenizer_ != nullptr) {
        AnswerText text(*tokenizer_, {}, {}, plan_.asked.skip_special_tokens);
        for (const std::int32_t id : asked.ids) {
            choice.unsent += text.add(id);
        }
        choice.unsent += text.finish();
    }
    if (plan_.asked.logprobs) {
        choice.said.push_back({.id = asked.ids.front(), .logprob = std::numeric_limits<float>::quiet_NaN()});
        choice.prompt_size = asked.ids.size();
    }
}

bool CompletionAnswer::is_end(std::int32_t id) const {
    return !plan_.asked.ignore_eos && std::ranges::find(plan_.end_ids, id) != plan_.end_ids.end();
}

std::vector<std::size_t> CompletionAnswer::take(const std::vector<GenerationNews>& news) {
    std::vector<std::size_t> stopped;
    for (const GenerationNews& one : news) {
        Choice& choice = choices_[one.sequence];
        if (choice.finish_reason) {
            continue;
        }
        choice.said.insert(choice.said.end(), one.step.prompt.begin(), one.step.prompt.end());
        if (one.step.token) {
            ++generated_;
            choice.said.push_back(*one.step.token);
            if (choice.text && !(plan_.asked.skip_special_tokens && is_end(one.step.token->id))) {
                choice.unsent += choice.text->add(one.step.token->id);
            }
        }
        if (choice.text && one.step.end) {
            choice.unsent += choice.text->finish();
        }
        if (choice.text && choice.text->stopped_by()) {
            choice.finish_reason = "stop";
            choice.stop_reason = *choice.text->stopped_by();
            stopped.push_back(one.sequence);
        } else if (one.step.end == GenerationStep::End::stop) {
            choice.finish_reason = "stop";
            if (!is_end(one.step.token->id)) {
                choice.stop_reason = one.step.token->id;
            }
        } else if (one.step.end == GenerationStep::End::length) {
            choice.finish_reason = "length";
        } else if (one.step.end) {
            failed_ = true;
        }
    }
    return stopped;
}

json::object CompletionAnswer::envelope(bool whole) const {
    const char* object = plan_.asked.chat ? (whole ? "chat.completion" : "chat.completion.chunk") : "text_completion";
    json::object made{{"id", plan_.id}, {"object", object}, {"created", plan_.created}, {"model", plan_.model}};
    if (!plan_.weight_version.empty()) {
        made["weight_version"] = plan_.weight_version;
    }
    return made;
}

json::object CompletionAnswer::usage() const {
    std::uint64_t prompt = 0;
    for (const Prompt& one : plan_.asked.prompts) {
        prompt += one.ids.size();
    }
    return {{"prompt_tokens", prompt}, {"completion_tokens", generated_}, {"total_tokens", prompt + generated_}};
}

json::object CompletionAnswer::whole() {
    json::object answer = envelope(true);
    json::array& choices = answer["choices"].emplace_array();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        choices.push_back(choice_object(i, true));
    }
    answer["usage"] = usage();
    if (plan_.asked.chat && plan_.asked.return_token_ids) {
        answer["prompt_token_ids"] = ids_of(plan_.asked.prompts.front().ids);
    }
    return answer;
}

std::string CompletionAnswer::events() {
    std::string text;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        const Choice& choice = choices_[i];
        const bool names_tokens = plan_.asked.logprobs || plan_.asked.return_token_ids;
        const bool has_news = !choice.unsent.empty() || (names_tokens && choice.sent < choice.said.size());
        // The last event of a choice empties it.
        if (has_news || (choice.finish_reason && choice.sent < choice.said.size()) ||
            (choice.finish_reason && !choice.begun)) {
            json::object event = envelope(false);
            event["choices"].emplace_array().push_back(choice_object(i, false));
            text += event_of(event);
        }
    }
    return text;
}

std::string CompletionAnswer::last_events() const {
    std::string text;
    if (plan_.asked.include_usage) {
        json::object event = envelope(false);
        event["choices"].emplace_array();
        event["usage"] = usage();
        text = event_of(event);
    }
    return text + "data: [DONE]\n\n";
}

json::object CompletionAnswer::choice_object(std::size_t index, bool whole) {
    Choice& choice = choices_[index];
    json::object object{{"index", index}};
    std::string text = std::exchange(choice.unsent, {});
    const bool first = !std::exchange(choice.begun, true);
    if (!plan_.asked.chat) {
        object["text"] = std::move(text);
    } else if (whole) {
        object["message"] = json::object{{"role", "assistant"}, {"content", std::move(text)}};
    } else {
        json::object& delta = object["delta"].emplace_object();
        if (first) {
            delta["role"] = "assistant";
        }
        delta["content"] = std::move(text);
    }
    if (plan_.asked.return_token_ids) {
        const std::size_t from = std::max(choice.sent, choice.prompt_size);
        json::array& ids = object["token_ids"].emplace_array();
        for (std::size_t i = from; i < choice.said.size(); ++i) {
            ids.push_back(choice.said[i].id);
        }
        if (first && !plan_.asked.chat) {
            object["prompt_token_ids"] = ids_of(plan_.asked.prompts[index / plan_.asked.n].ids);
        }
    }
    object["logprobs"] = logprobs_of(choice);
    choice.sent = choice.said.size();
    object["finish_reason"] = choice.finish_reason ? json::value(*choice.finish_reason) : json::value();
    object["stop_reason"] = choice.stop_reason;
    return object;
}

json::value CompletionAnswer::logprobs_of(Choice& choice) const {
    if (!plan_.asked.logprobs) {
        return nullptr;
    }
    return plan_.asked.chat ? chat_logprobs(choice) : completion_logprobs(choice);
}

json::object CompletionAnswer::completion_logprobs(Choice& choice) const {
    json::array tokens;
    json::array logprobs;
    json::array top;
    json::array offsets;
    for (std::size_t i = choice.sent; i < choice.said.size(); ++i) {
        const SaidToken& said = choice.said[i];
        const std::string name = name_of_token(said.id);
        offsets.emplace_back(choice.offset);
        choice.offset += code_points(name);
        tokens.emplace_back(name);
        if (std::isnan(said.logprob)) {
            logprobs.emplace_back(nullptr);
            top.emplace_back(nullptr);
            continue;
        }
        logprobs.emplace_back(said.logprob);
        json::object& named = top.emplace_back(json::object()).get_object();
        for (const models::TopEntry& entry : with_itself(said)) {
            // Of tokens with equal texts, the likeliest is named.
            named.emplace(name_of_token(static_cast<std::int32_t>(entry.id)), entry.value);
        }
    }
    return {{"tokens", std::move(tokens)},
            {"token_logprobs", std::move(logprobs)},
            {"top_logprobs", std::move(top)},
            {"text_offset", std::move(offsets)}};
}

json::object CompletionAnswer::chat_logprobs(const Choice& choice) const {
    const auto entry_of = [this](std::int32_t id, float logprob) {
        const std::string bytes = tokenizer_ != nullptr ? tokenizer_->decode({id}) : std::string();
        json::object entry{{"token", name_of_token(id)}, {"logprob", logprob}};
        json::array& list = entry["bytes"].emplace_array();
        for (const char byte : bytes) {
            list.push_back(static_cast<unsigned char>(byte));
        }
        return entry;
    };
    json::array content;
    for (std::size_t i = choice.sent; i < choice.said.size(); ++i) {
        const SaidToken& said = choice.said[i];
        json::object entry = entry_of(said.id, said.logprob);
        json::array& top = entry["top_logprobs"].emplace_array();
        for (const models::TopEntry& one : said.top) {
            top.push_back(entry_of(static_cast<std::int32_t>(one.id), one.value));
        }
        content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}};
}

std::string CompletionAnswer::name_of_token(std::int32_t id) const {
    return tokenizer_ != nullptr ? token_text(*tokenizer_, id) : "token_id:" + std::to_string(id);
}

json::object openai_error(unsigned status, const std::string& message, const std::string& parameter,
                          const std::string& code) {
    json::object error{{"message", message},
                       {"type", status >= 500 ? "server_error" : "invalid_request_error"},
                       {"param", nullptr},
                       {"code", nullptr}};
    if (!parameter.empty()) {
        error["param"] = parameter;
    }
    if (!code.empty()) {
        error["code"] = code;
    }
    return {{"error", std::move(error)}};
}

std::string event_of(const json::object& object) {
    return "data: " + to_text(object) + "\n\n";
}

}  // namespace distilld::teacher
