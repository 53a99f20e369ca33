#include "tests/unit/pipeline/teacher/small_model_server.hpp"

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/half_float.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

namespace distilld::test {
namespace {

namespace json = boost::json;
using Prompt = std::vector<std::int32_t>;

struct Entry {
    std::int32_t id = 0;
    float value = 0;
};
using Row = std::vector<Entry>;  ///< by descending value

/// Logits of what follows `tokens[..count]`: between 1 and 9, drawn from all of those tokens.
std::vector<float> logits_after(const Prompt& tokens, std::size_t count, bool half) {
    std::uint64_t state = 0x9E3779B97F4A7C15ULL;
    for (std::size_t i = 0; i < count; ++i) {
        state = (state ^ static_cast<std::uint64_t>(tokens[i] + 1)) * 0xBF58476D1CE4E5B9ULL;
        state ^= state >> 29U;
    }
    std::vector<float> logits;
    for (std::uint32_t id = 0; id < kSmallVocabulary; ++id) {
        std::uint64_t drawn = (state + id) * 0x94D049BB133111EBULL;
        drawn ^= drawn >> 31U;
        const auto logit = static_cast<float>(1.0 + 8.0 * static_cast<double>(drawn >> 11U) * 0x1.0p-53);
        logits.push_back(half ? bfloat16_to_float(float_to_bfloat16(logit)) : logit);
    }
    return logits;
}

/// The model behind a server.
struct SmallModel {
    ServerFault fault = ServerFault::none;

    /// Numbers of all tokens for the position at `at`, which sees the tokens up to it.
    [[nodiscard]] std::vector<float> numbers(const Prompt& tokens, std::size_t at, bool as_logits) const {
        std::size_t count = at + 1;
        count += fault == ServerFault::shifted_late && count < tokens.size() ? 1 : 0;
        count -= fault == ServerFault::shifted_early ? 1 : 0;
        std::vector<float> row = logits_after(tokens, count, fault == ServerFault::half_precision);
        if (as_logits || fault == ServerFault::raw_logits) {
            return row;
        }
        if (fault == ServerFault::low_logits) {
            std::for_each(row.begin(), row.end(), [](float& value) { value -= 20; });
            return row;
        }
        if (fault == ServerFault::clamped) {
            std::fill(row.begin() + 2, row.end(), -9999.0F);
        }
        const float max = *std::max_element(row.begin(), row.end());
        double sum = 0;
        for (const float logit : row) {
            sum += std::exp(static_cast<double>(logit) - max);
        }
        for (float& logit : row) {
            const double value = logit - max - std::log(sum);
            logit = fault == ServerFault::clamped && value < -9000 ? -9999.0F : static_cast<float>(value);
        }
        return row;
    }

    /// The k most likely of a position.
    [[nodiscard]] Row top(const Prompt& tokens, std::size_t at, std::size_t k) const {
        const std::vector<float> values = numbers(tokens, at, false);
        Row row;
        for (std::size_t id = 0; id < values.size(); ++id) {
            row.push_back({static_cast<std::int32_t>(id), values[id]});
        }
        std::sort(row.begin(), row.end(),
                  [](const Entry& a, const Entry& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; });
        if (fault == ServerFault::capped) {
            k /= 2;
        }
        if (fault == ServerFault::ragged && at == 1) {
            k -= 1;
        }
        row.resize(std::min(k, row.size()));
        return row;
    }
};

std::string number(float value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.9g", static_cast<double>(value));
    return text.data();
}

template <class Items, class Text>
std::string listed(const Items& items, Text text) {
    std::string all;
    for (const auto& item : items) {
        all += (all.empty() ? "" : ",") + text(item);
    }
    return "[" + all + "]";
}

/// Tokens of a prompt but its first: those that rows are for.
std::vector<std::size_t> row_tokens(const Prompt& prompt) {
    std::vector<std::size_t> tokens(prompt.size() - 1);
    std::iota(tokens.begin(), tokens.end(), std::size_t{1});
    return tokens;
}

// --- vLLM

std::string vllm_rows(const SmallModel& model, const Prompt& prompt, std::size_t k) {
    std::string rows;
    for (const std::size_t token : row_tokens(prompt)) {
        Row row = model.top(prompt, token - 1, k);
        const std::int32_t own = prompt[token] + (model.fault == ServerFault::other_prompt ? 1 : 0);
        const auto found = std::find_if(row.begin(), row.end(), [own](const Entry& entry) { return entry.id == own; });
        const float value = model.numbers(prompt, token - 1, false)[static_cast<std::size_t>(own)];
        if (found != row.end()) {
            row.erase(found);
        }
        row.insert(row.begin(), {own, value});  // the prompt's own token comes first
        std::string entries;
        for (const Entry& entry : row) {
            const std::string key = model.fault == ServerFault::keyed_by_text ? " w" : "";
            entries += (entries.empty() ? "\"" : ",\"") + key + std::to_string(entry.id) + R"(":{"logprob":)" +
                       number(entry.value) + R"(,"rank":1,"decoded_token":"w"})";
        }
        rows += ",{" + entries + "}";
    }
    return "[null" + rows + "]";
}

ScriptedReply vllm_reply(const SmallModel& model, const SeenRequest& request) {
    const json::value asked = json::parse(request.body);
    ScriptedReply reply;
    if (model.fault == ServerFault::ignores_request) {
        reply.body = read_fixture("sglang-prompt_logprobs-ignored.json");
        return reply;
    }
    if (request.target == "/inference/v1/generate") {
        const auto k = asked.at("sampling_params").at("prompt_logprobs").to_number<std::size_t>();
        reply.body = R"({"prompt_logprobs":)" + vllm_rows(model, prompts_in(request, "token_ids").front(), k) + "}";
        return reply;
    }
    const auto k = asked.at("prompt_logprobs").to_number<std::size_t>();
    std::size_t index = 0;
    reply.body = R"({"choices":)" +
                 listed(prompts_in(request, "prompt"),
                        [&](const Prompt& prompt) {
                            return R"({"index":)" + std::to_string(index++) + R"(,"prompt_logprobs":)" +
                                   vllm_rows(model, prompt, k) + "}";
                        }) +
                 "}";
    return reply;
}

// --- SGLang

std::string sglang_sequence(const SmallModel& model, const Prompt& prompt, std::size_t k, bool flat) {
    std::size_t at = 0;
    const std::string own = listed(prompt, [&](std::int32_t id) {
        const std::string value = at == 0 ? "null" : number(model.numbers(prompt, at - 1, false)[std::size_t(id)]);
        ++at;
        return "[" + value + "," + std::to_string(id + (model.fault == ServerFault::other_prompt ? 1 : 0)) + ",null]";
    });
    std::string text = R"({"text":"","meta_info":{"input_token_logprobs":)" + own;
    if (!flat) {
        std::string rows = "[null";
        for (const std::size_t token : row_tokens(prompt)) {
            rows += "," + listed(model.top(prompt, token - 1, k), [](const Entry& entry) {
                        return "[" + number(entry.value) + "," + std::to_string(entry.id) + ",null]";
                    });
        }
        return text + R"(,"input_top_logprobs":)" + rows + "]}}";
    }
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    std::size_t width = 0;
    for (const std::size_t token : row_tokens(prompt)) {
        const Row row = model.top(prompt, token - 1, k);
        width = std::max(width, row.size());
        for (const Entry& entry : row) {
            values.push_back(entry.value);
            ids.push_back(entry.id);
        }
    }
    return text + R"(,"input_top_logprobs":null,"input_top_logprobs_val_flat_b64":")" + base64(values) +
           R"(","input_top_logprobs_idx_flat_b64":")" + base64(ids) + R"(","input_top_logprobs_shape":[)" +
           std::to_string(prompt.size() - 1) + "," + std::to_string(width) +
           R"(],"input_top_logprobs_null_prefix":1}})";
}

ScriptedReply sglang_reply(const SmallModel& model, const SeenRequest& request, bool flat) {
    const auto k = json::parse(request.body).at("top_logprobs_num").to_number<std::size_t>();
    const auto prompts = prompts_in(request, "input_ids");
    ScriptedReply reply;
    // Such a server ends: the connection is closed without an answer.
    const bool foreign = std::any_of(prompts.begin(), prompts.end(), [](const Prompt& prompt) {
        return std::any_of(prompt.begin(), prompt.end(),
                           [](std::int32_t id) { return id < 0 || id >= std::int32_t{kSmallVocabulary}; });
    });
    if (k > kSmallVocabulary || foreign) {
        reply.reset = true;
        return reply;
    }
    if (model.fault == ServerFault::ignores_request) {
        reply.body = R"([{"text":"x","output_ids":[1],"meta_info":{"id":"1","prompt_tokens":3}}])";
        return reply;
    }
    reply.body = listed(prompts, [&](const Prompt& prompt) { return sglang_sequence(model, prompt, k, flat); });
    return reply;
}

// --- TRL

ScriptedReply trl_reply(const SmallModel& model, const SeenRequest& request) {
    const auto k = json::parse(request.body).at("top_logprobs").to_number<std::size_t>();
    ScriptedReply reply;
    if (model.fault == ServerFault::ignores_request) {
        reply.body = R"({"logprobs":[[[-1.0]]],"logprob_token_ids":[[[1]]]})";  // before TRL 1.1
        return reply;
    }
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> own;
    const auto prompts = prompts_in(request, "sequences");
    std::size_t width = 0;
    for (const Prompt& prompt : prompts) {
        for (const std::size_t token : row_tokens(prompt)) {
            Row row = model.top(prompt, token - 1, k);
            width = std::max(width, row.size());
            row.resize(width, {0, -std::numeric_limits<float>::infinity()});  // as numpy pads
            for (const Entry& entry : row) {
                values.push_back(entry.value);
                ids.push_back(entry.id);
            }
            own.push_back(prompt[token] + (model.fault == ServerFault::other_prompt ? 1 : 0));
        }
    }
    const std::string rows = std::to_string(prompts.front().size() - 1);
    reply.body = R"({"logprobs":null,"logprobs_b64":")" + base64(values) + R"(","token_ids_b64":")" + base64(ids) +
                 R"(","actual_token_ids_b64":")" + base64(own) + R"(","shape":[)" + std::to_string(prompts.size()) +
                 "," + rows + "," + std::to_string(width) + R"(],"completion_lengths":)" +
                 listed(prompts, [&](const Prompt&) { return rows; }) + "}";
    return reply;
}

// --- KServe and seed

std::string seed_rows(const SmallModel& model, const std::vector<Prompt>& prompts) {
    return listed(prompts, [&](const Prompt& prompt) {
        std::vector<std::size_t> positions(prompt.size());
        std::iota(positions.begin(), positions.end(), std::size_t{0});
        return listed(positions, [&](std::size_t at) {
            std::vector<float> row = model.numbers(prompt, at, true);
            if (model.fault == ServerFault::ragged && at == 1) {
                row.pop_back();
            }
            return listed(row, number);
        });
    });
}

ScriptedReply seed_reply(const SmallModel& model, const SeenRequest& request) {
    ScriptedReply reply;
    reply.body = model.fault == ServerFault::ignores_request
                     ? read_fixture("sglang-prompt_logprobs-ignored.json")
                     : R"({"logits":)" + seed_rows(model, prompts_in(request, "input_ids")) + "}";
    return reply;
}

ScriptedReply kserve_reply(const SmallModel& model, const SeenRequest& request, SmallServer form) {
    const auto header = request.headers.find("inference-header-content-length");
    const auto length = header != request.headers.end() ? std::optional(std::stoul(header->second)) : std::nullopt;
    const auto asked = kserve::parse_infer_request(std::make_shared<const std::string>(request.body), length).value();
    const auto& input = asked.inputs.at(0);
    const auto tokens = kserve::copy_elements<std::int32_t>(input);
    const auto columns = static_cast<std::size_t>(input.shape[1]);
    std::vector<float> values;
    std::vector<std::int32_t> ids;
    std::vector<float> tails;
    std::int64_t width = form == SmallServer::kserve_logits ? kSmallVocabulary : 0;
    for (std::size_t at = 0; at < tokens.size(); ++at) {
        const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(at / columns * columns);
        const Prompt prompt(first, first + static_cast<std::ptrdiff_t>(columns));
        if (form == SmallServer::kserve_logits) {
            const auto row = model.numbers(prompt, at % columns, true);
            values.insert(values.end(), row.begin(), row.end());
            continue;
        }
        const auto k = static_cast<std::size_t>(std::get<std::int64_t>(asked.parameters.at("top_k")));
        const Row row = model.top(prompt, at % columns, k);
        width = std::max(width, static_cast<std::int64_t>(row.size()));
        double inside = 0;
        for (const Entry& entry : row) {
            values.push_back(entry.value);
            ids.push_back(entry.id);
            inside += std::exp(static_cast<double>(entry.value));
        }
        tails.push_back(static_cast<float>(std::log(std::max(0.0, 1 - inside))));
    }
    kserve::InferResponse response;
    response.model_name = "teacher";
    const std::vector<std::int64_t> shape{input.shape[0], input.shape[1], width};
    if (model.fault == ServerFault::ignores_request) {
        response.outputs.clear();  // MLServer's way
    } else if (form == SmallServer::kserve_logits) {
        response.outputs.push_back(kserve::make_tensor("logits", "FP32", shape, values));
    } else {
        response.outputs.push_back(kserve::make_tensor("topk_ids", "INT32", shape, ids));
        response.outputs.push_back(kserve::make_tensor("topk_logprobs", "FP32", shape, values));
        if (form == SmallServer::kserve_tail) {
            response.outputs.push_back(
                kserve::make_tensor("tail_logprob", "FP32", {input.shape[0], input.shape[1]}, tails));
        }
    }
    auto encoded = kserve::build_infer_response(response).value();
    ScriptedReply reply;
    if (encoded.json_header_length) {
        reply.headers = {{"Inference-Header-Content-Length", std::to_string(*encoded.json_header_length)}};
    }
    reply.body = std::move(encoded.body);
    return reply;
}

}  // namespace

TeacherProtocol protocol_of(SmallServer server) noexcept {
    switch (server) {
        case SmallServer::kserve_topk:
        case SmallServer::kserve_tail:
        case SmallServer::kserve_logits:
            return TeacherProtocol::kserve;
        case SmallServer::seed:
            return TeacherProtocol::seed;
        case SmallServer::vllm:
            return TeacherProtocol::vllm;
        case SmallServer::vllm_generate:
            return TeacherProtocol::vllm_generate;
        case SmallServer::sglang:
        case SmallServer::sglang_flat:
            return TeacherProtocol::sglang;
        case SmallServer::trl:
            return TeacherProtocol::trl;
    }
    return TeacherProtocol::kserve;
}

std::string name_of(SmallServer server) {
    constexpr const char* kNames[] = {"kserve top-k", "kserve top-k and tail", "kserve logits", "seed",
                                      "vllm",         "vllm-generate",         "sglang",        "sglang flat",
                                      "trl"};
    return kNames[static_cast<std::size_t>(server)];
}

ScriptedHttpServer::Handler small_model_server(SmallServer server, ServerFault fault) {
    const SmallModel model{fault};
    switch (protocol_of(server)) {
        case TeacherProtocol::seed:
            return [model](const SeenRequest& request) { return seed_reply(model, request); };
        case TeacherProtocol::vllm:
        case TeacherProtocol::vllm_generate:
            return listing_server(read_fixture("vllm-models.json"),
                                  [model](const SeenRequest& request) { return vllm_reply(model, request); });
        case TeacherProtocol::sglang:
            return listing_server(read_fixture("sglang-models.json"), [model, server](const SeenRequest& request) {
                return sglang_reply(model, request, server == SmallServer::sglang_flat);
            });
        case TeacherProtocol::trl:
            return [model](const SeenRequest& request) { return trl_reply(model, request); };
        default:
            return own_teacher(
                [model, server](const SeenRequest& request) { return kserve_reply(model, request, server); });
    }
}

}  // namespace distilld::test
