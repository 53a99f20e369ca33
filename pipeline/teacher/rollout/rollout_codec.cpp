#include "pipeline/teacher/rollout/rollout_codec.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/json_text.hpp"

namespace distilld {

namespace od = simdjson::ondemand;

namespace {

/// Maximum JSON bytes per token of an answer: its id, text (twice) and log-probability (twice).
constexpr std::uint64_t kTokenBytes = 2048;
constexpr std::uint64_t kEnvelopeBytes = 65536;

struct RolloutStorage {
    std::vector<std::int32_t> ids;
    std::vector<float> values;
    std::vector<std::uint8_t> mask;
};

ArrayView view_of(ElementType type, const auto& values) {
    return {type, std::as_bytes(std::span(values))};
}

void read_choice(od::object choice, Rollout& rollout) {
    for (auto field : choice) {
        const std::string_view key = field.unescaped_key();
        if (key == "token_ids") {
            rollout.ids = json_numbers<std::int32_t, std::int64_t>(field.value(), "'token_ids'");
        } else if (key == "logprobs") {
            od::object told;
            if (field.value().get_object().get(told) == simdjson::SUCCESS) {
                od::value values;
                if (told.find_field_unordered("token_logprobs").get(values) == simdjson::SUCCESS) {
                    rollout.log_probabilities = json_numbers<float, double>(values, "'token_logprobs'");
                }
            }
        }
    }
}

ToldRollout read_completion(od::object answer) {
    ToldRollout told;
    std::size_t choices = 0;
    for (auto field : answer) {
        const std::string_view key = field.unescaped_key();
        if (key == "choices") {
            for (auto choice : json_array(field.value(), "'choices'")) {
                read_choice(choice.get_object(), told.rollout);
                ++choices;
            }
        } else if (key == "weight_version") {
            told.weights = json_text(field.value(), "'weight_version'");
        }
    }
    if (choices != 1) {
        fail_answer("'choices' has " + std::to_string(choices) + " entries, expected 1");
    }
    return told;
}

/// `[log-probability, id, text]`.
float first_of(od::array triple) {
    double number = 0;
    if (triple.at(0).get_double().get(number) != simdjson::SUCCESS) {
        fail_answer("'output_token_logprobs' holds an entry that does not begin with a number");
    }
    return static_cast<float>(number);
}

void read_meta(od::object meta, ToldRollout& told) {
    for (auto field : meta) {
        const std::string_view key = field.unescaped_key();
        if (key == "output_token_logprobs") {
            for (auto triple : json_array(field.value(), "'output_token_logprobs'")) {
                told.rollout.log_probabilities.push_back(first_of(triple.get_array()));
            }
        } else if (key == "weight_version") {
            told.weights = json_text(field.value(), "'weight_version'");
        }
    }
}

/// The answer of /generate.
ToldRollout read_native(od::object answer) {
    ToldRollout told;
    for (auto field : answer) {
        const std::string_view key = field.unescaped_key();
        if (key == "output_ids") {
            told.rollout.ids = json_numbers<std::int32_t, std::int64_t>(field.value(), "'output_ids'");
        } else if (key == "meta_info") {
            read_meta(field.value().get_object(), told);
        }
    }
    return told;
}

void append_numbers(std::string& json, std::span<const std::int32_t> numbers) {
    json += '[';
    for (const std::int32_t number : numbers) {
        json += std::to_string(number);
        json += ',';
    }
    json.back() = ']';
}

}  // namespace

Result<std::vector<RequestPart>> RolloutCodec::plan_requests(const TokenBatch& tokens) const {
    auto parts = split_rows(tokens, {.max_rows = 1});
    if (parts) {
        std::erase_if(*parts, [&](const RequestPart& part) { return !wants_answer(tokens, part.first_row); });
    }
    return parts;
}

std::string RolloutCodec::completion_body(const std::string& model, std::span<const std::int32_t> prompt,
                                          std::uint64_t seed, double temperature, std::uint32_t max_tokens) const {
    std::string body = model.empty() ? R"({"prompt":)" : R"({"model":")" + model + R"(","prompt":)";
    append_numbers(body, prompt);
    body += R"(,"max_tokens":)" + std::to_string(max_tokens) + R"(,"temperature":)" + number_text(temperature) +
            (options_.top_p < 1 ? R"(,"top_p":)" + number_text(options_.top_p) : "") + R"(,"seed":)" +
            std::to_string(seed) + R"(,"logprobs":0,"return_token_ids":true})";
    return body;
}

std::string RolloutCodec::native_body(const std::string& adapter, std::span<const std::int32_t> prompt,
                                      std::uint64_t seed, double temperature, std::uint32_t max_tokens) const {
    std::string body = R"({"input_ids":)";
    append_numbers(body, prompt);
    body += R"(,"sampling_params":{"max_new_tokens":)" + std::to_string(max_tokens) + R"(,"temperature":)" +
            number_text(temperature) + R"(,"top_p":)" + number_text(options_.top_p) + R"(,"sampling_seed":)" +
            std::to_string(seed) + R"(},"return_logprob":true)" +
            (adapter.empty() ? "" : R"(,"lora_path":")" + adapter + '"') + '}';
    return body;
}

HttpRequest RolloutCodec::request(const std::string& model, std::span<const std::int32_t> prompt, std::uint64_t seed,
                                  double temperature, std::uint32_t max_tokens) const {
    HttpRequest request;
    request.target = options_.target;
    request.content_type = kJsonContentType;
    request.body = std::make_shared<std::string>(options_.dialect->native
                                                     ? native_body(model, prompt, seed, temperature, max_tokens)
                                                     : completion_body(model, prompt, seed, temperature, max_tokens));
    request.response_limit = kEnvelopeBytes + kTokenBytes * max_tokens;
    return request;
}

Result<HttpRequest> RolloutCodec::make_request(const TokenBatch& tokens, const RequestPart& part) const {
    const std::uint32_t row = part.first_row;
    const std::span all(tokens.input_ids);
    const auto prompt = all.subspan(std::size_t{row} * tokens.columns, static_cast<std::size_t>(tokens.lengths[row]));
    const std::uint64_t seed = options_.plan.seed_of(tokens.number, row, tokens.row_ids[row]);
    const std::string weights = options_.other_weights ? std::string() : model(options_.plan.version_of(tokens.number));
    return request(weights, prompt, seed, options_.temperature, options_.max_tokens);
}

Result<ToldRollout> RolloutCodec::read(const HttpResponse& response, std::uint32_t max_tokens) const {
    const auto take = [this, max_tokens](od::document& document) {
        ToldRollout told =
            options_.dialect->native ? read_native(document.get_object()) : read_completion(document.get_object());
        const std::size_t tokens = told.rollout.ids.size();
        const char* const ids = options_.dialect->native ? "output_ids" : "token_ids";
        if (tokens == 0) {
            fail_answer(std::string("the answer has no '") + ids + "': the server ignored the request for them");
        }
        if (tokens > max_tokens) {
            fail_answer("the answer has " + std::to_string(tokens) + " tokens, at most " + std::to_string(max_tokens) +
                        " were asked for");
        }
        if (told.rollout.log_probabilities.size() != tokens) {
            fail_answer("the answer has " + std::to_string(told.rollout.log_probabilities.size()) +
                        " log-probabilities for " + std::to_string(tokens) + " tokens");
        }
        return told;
    };
    if (!response.body) {
        return teacher_error("the answer is empty");
    }
    return read_json_answer(*response.body, *parsers_, take);
}

Result<TeacherTargets> RolloutCodec::decode(const HttpResponse& response, const TokenBatch& tokens,
                                            const RequestPart& part) const {
    const Result<ToldRollout> told = read(response, options_.max_tokens);
    const auto failed = [&part](ErrorKind kind, const std::string& why) {
        return Error{kind, "sequence " + std::to_string(part.first_row) + ": " + why};
    };
    if (!told) {
        return failed(told.error().kind, told.error().message);
    }
    const std::string wanted = model(options_.plan.version_of(tokens.number));
    if (options_.other_weights && told->weights != wanted) {
        options_.other_weights->store(true);
        return failed(ErrorKind::teacher, "was written with the weights '" + told->weights + "', not with '" + wanted +
                                              "': the server has started again, or others give it weights, too");
    }
    return targets_of(std::span(&told->rollout, 1), std::span(&tokens.lengths[part.first_row], 1), part.columns);
}

AnswerSize RolloutCodec::answer_size(std::uint32_t rows, std::uint32_t columns) const {
    AnswerSize size;
    size.max_wire_bytes = rows * (kEnvelopeBytes + kTokenBytes * options_.max_tokens);
    size.held_bytes = std::uint64_t{rows} * columns * (sizeof(std::int32_t) + sizeof(float) + 1);
    size.decode_bytes = size.held_bytes;
    return size;
}

bool wants_answer(const TokenBatch& prompts, std::uint32_t row) {
    const std::size_t last = std::size_t{row} * prompts.columns + static_cast<std::size_t>(prompts.lengths[row]) - 1;
    return prompts.labels[last] != kIgnoredLabel;
}

bool wants_no_answer(const TokenBatch& prompts) {
    return std::ranges::all_of(prompts.labels, [](std::int32_t label) { return label == kIgnoredLabel; });
}

TeacherTargets targets_of(std::span<const Rollout> rollouts, std::span<const std::int32_t> prompts,
                          std::uint32_t columns) {
    const std::size_t positions = rollouts.size() * columns;
    auto storage = std::make_shared<RolloutStorage>();
    storage->ids.resize(positions);
    storage->values.resize(positions);
    storage->mask.resize(positions);
    for (std::size_t row = 0; row < rollouts.size(); ++row) {
        const auto [ids, values] = std::pair(std::span(rollouts[row].ids), std::span(rollouts[row].log_probabilities));
        const std::size_t first = row * columns + static_cast<std::size_t>(prompts[row]) - 1;
        std::ranges::copy(ids, storage->ids.begin() + static_cast<std::ptrdiff_t>(first));
        std::ranges::copy(values, storage->values.begin() + static_cast<std::ptrdiff_t>(first));
        std::fill_n(storage->mask.begin() + static_cast<std::ptrdiff_t>(first), ids.size(), std::uint8_t{1});
    }
    TeacherTargets targets;
    targets.rows = static_cast<std::uint32_t>(rollouts.size());
    targets.columns = columns;
    targets.width = 1;
    targets.ids = view_of(ElementType::i32, storage->ids);
    targets.values = view_of(ElementType::f32, storage->values);
    targets.loss_mask = view_of(ElementType::u8, storage->mask);
    targets.held_bytes = positions * (sizeof(std::int32_t) + sizeof(float) + 1);
    targets.owner = std::move(storage);
    return targets;
}

std::vector<Rollout> rollouts_of(const TeacherTargets& targets, std::span<const std::int32_t> prompts) {
    std::vector<Rollout> rollouts(targets.rows);
    for (std::uint32_t row = 0; row < targets.rows; ++row) {
        const std::size_t begin = std::size_t{row} * targets.columns;
        for (std::size_t at = begin + static_cast<std::size_t>(prompts[row]) - 1; at < begin + targets.columns; ++at) {
            if (targets.loss_mask.bytes[at] == std::byte{0}) {
                break;
            }
            std::int32_t id = 0;
            float value = 0;
            std::memcpy(&id, targets.ids.bytes.data() + at * sizeof id, sizeof id);
            std::memcpy(&value, targets.values.bytes.data() + at * sizeof value, sizeof value);
            rollouts[row].ids.push_back(id);
            rollouts[row].log_probabilities.push_back(value);
        }
    }
    return rollouts;
}

TokenBatch answered_batch(const TokenBatch& prompts, std::span<const Rollout> rollouts, const TokenBatch& others) {
    TokenBatch batch;
    batch.number = prompts.number;
    batch.rows = prompts.rows;
    batch.row_ids = prompts.row_ids;
    std::uint32_t other = 0;
    for (std::uint32_t row = 0; row < prompts.rows; ++row) {
        const auto answer = static_cast<std::int32_t>(rollouts[row].ids.size());
        batch.lengths.push_back(answer > 0 ? prompts.lengths[row] + answer - 1 : others.lengths.at(other++));
        batch.columns = std::max(batch.columns, static_cast<std::uint32_t>(batch.lengths.back()));
        batch.target_tokens += rollouts[row].ids.size();
    }
    batch.target_tokens += others.target_tokens;
    const std::size_t positions = std::size_t{batch.rows} * batch.columns;
    batch.input_ids.assign(positions, 0);
    batch.labels.assign(positions, kIgnoredLabel);
    other = 0;
    for (std::uint32_t row = 0; row < prompts.rows; ++row) {
        const std::vector<std::int32_t>& answer = rollouts[row].ids;
        const auto begin = std::ptrdiff_t{row} * batch.columns;
        if (answer.empty()) {
            const auto from = std::ptrdiff_t{other} * others.columns;
            const std::int32_t length = others.lengths[other++];
            std::copy_n(others.input_ids.begin() + from, length, batch.input_ids.begin() + begin);
            std::copy_n(others.labels.begin() + from, length, batch.labels.begin() + begin);
            continue;
        }
        const auto asked = prompts.input_ids.begin() + std::ptrdiff_t{row} * prompts.columns;
        const auto behind = std::copy(asked, asked + prompts.lengths[row], batch.input_ids.begin() + begin);
        std::copy(answer.begin(), answer.end() - 1, behind);
        std::ranges::copy(answer, batch.labels.begin() + begin + prompts.lengths[row] - 1);
    }
    return batch;
}

}  // namespace distilld
