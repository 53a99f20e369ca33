#include "bench/decode_bodies.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/half_float.hpp"
#include "base/random.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/protocols/registry.hpp"

namespace distilld::bench {
namespace {

constexpr const char* kModel = "teacher";

template <class Number>
void append_number(std::string& text, Number number) {
    std::array<char, 40> digits;
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
    text.append(digits.data(), end.ptr);
}

/// A float as a server writes it.
void append_float(std::string& text, float value) {
    append_number(text, static_cast<double>(value));
}

TokenBatch make_tokens(std::uint32_t rows, std::uint32_t columns, std::uint32_t vocabulary) {
    TokenBatch tokens;
    SplitMix64 random(7);
    tokens.rows = rows;
    tokens.columns = columns;
    const std::size_t positions = std::size_t{rows} * columns;
    for (std::size_t i = 0; i < positions; ++i) {
        tokens.input_ids.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
        tokens.labels.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
    }
    tokens.lengths.assign(rows, static_cast<std::int32_t>(columns));
    tokens.target_tokens = positions;
    return tokens;
}

/// Top-k rows: ids that differ within a row, log-probabilities that fall.
struct TopkRows {
    std::vector<std::uint32_t> ids;
    std::vector<float> values;
    std::vector<float> tail;
};

TopkRows make_topk(std::size_t positions, std::uint32_t k, std::uint32_t vocabulary) {
    SplitMix64 random(11);
    TopkRows rows;
    for (std::size_t position = 0; position < positions; ++position) {
        const auto first = static_cast<std::uint32_t>(random.below(vocabulary));
        float value = -0.5F - static_cast<float>(random.uniform());
        for (std::uint32_t i = 0; i < k; ++i) {
            rows.ids.push_back((first + i * 37) % vocabulary);
            rows.values.push_back(value);
            value -= static_cast<float>(random.uniform()) * 0.2F;
        }
        rows.tail.push_back(-3.0F - static_cast<float>(random.uniform()));
    }
    return rows;
}

HttpResponse response_of(std::string_view body) {
    HttpResponse response;
    response.status = 200;
    response.body = std::make_shared<BodyBuffer>();
    response.body->resize(body.size());
    std::memcpy(response.body->data(), body.data(), body.size());
    return response;
}

std::shared_ptr<const TeacherCodec> codec_of(TeacherProtocol protocol, TargetsWanted wanted,
                                             const std::shared_ptr<BufferPool>& buffers) {
    const TeacherProtocolRow& row = *find_protocol(teacher_protocols(), protocol);
    const auto url = parse_endpoint_url("http://127.0.0.1:1", default_path_for(row, kModel)).value();
    return row.make_adapter({url, kModel, buffers}).value()->assumed_codec(wanted).value();
}

std::string seed_body(const TokenBatch& tokens, std::uint32_t vocabulary) {
    SplitMix64 random(3);
    std::string body = R"({"logits":[)";
    for (std::uint32_t row = 0; row < tokens.rows; ++row) {
        body += row == 0 ? "[" : ",[";
        for (std::uint32_t column = 0; column < tokens.columns; ++column) {
            body += column == 0 ? "[" : ",[";
            for (std::uint32_t i = 0; i < vocabulary; ++i) {
                body += i == 0 ? "" : ",";
                append_float(body, static_cast<float>(random.uniform() * 24 - 16));
            }
            body += "]";
        }
        body += "]";
    }
    return body + "]}";
}

template <class Element, class Append>
void append_tensor(std::string& body, std::string_view head, const std::vector<Element>& elements, Append append) {
    body += head;
    for (std::size_t i = 0; i < elements.size(); ++i) {
        body += i == 0 ? "" : ",";
        append(body, elements[i]);
    }
    body += "]}";
}

std::string kserve_body(const TokenBatch& tokens, const TopkRows& rows, std::uint32_t k) {
    const std::string positions = std::to_string(tokens.rows) + "," + std::to_string(tokens.columns);
    const std::string shape = R"(","shape":[)" + positions + "," + std::to_string(k) + R"(],"data":[)";
    std::string body = R"({"model_name":"teacher","outputs":[)";
    append_tensor(body, R"({"name":"topk_ids","datatype":"UINT32)" + shape, rows.ids, append_number<std::uint32_t>);
    append_tensor(body, R"(,{"name":"topk_logprobs","datatype":"FP32)" + shape, rows.values, append_float);
    append_tensor(body, R"(,{"name":"tail_logprob","datatype":"FP32","shape":[)" + positions + R"(],"data":[)",
                  rows.tail, append_float);
    return body + "]}";
}

/// As vLLM's own server: the prompt's token first, and the text of each.
std::string vllm_body(const TokenBatch& tokens, const TopkRows& rows, std::uint32_t k) {
    std::string body = R"({"id":"cmpl-1","object":"text_completion","model":"teacher","choices":[)";
    const auto append_entry = [&body](std::uint32_t id, float value, std::uint32_t rank) {
        body += '"';
        append_number(body, id);
        body += R"(":{"logprob":)";
        append_float(body, value);
        body += R"(,"rank":)";
        append_number(body, rank);
        body += R"(,"decoded_token":" word"})";
    };
    for (std::uint32_t row = 0; row < tokens.rows; ++row) {
        body += row == 0 ? "" : ",";
        body +=
            R"({"index":)" + std::to_string(row) + R"(,"text":" x","finish_reason":"length","prompt_logprobs":[null)";
        for (std::uint32_t column = 0; column < tokens.columns; ++column) {
            const std::size_t at = std::size_t{row} * tokens.columns + column;
            const bool last = column + 1 == tokens.columns;
            const auto own = static_cast<std::uint32_t>(last ? tokens.labels[at] : tokens.input_ids[at + 1]);
            body += ",{";
            append_entry(own, -20.5F, 9000);
            for (std::uint32_t i = 0; i < k; ++i) {
                if (rows.ids[at * k + i] != own) {
                    body += ",";
                    append_entry(rows.ids[at * k + i], rows.values[at * k + i], i + 1);
                }
            }
            body += "}";
        }
        body += "]}";
    }
    return body + R"(],"usage":{"prompt_tokens":1,"total_tokens":2,"completion_tokens":1}})";
}

HttpResponse binary_response(const TokenBatch& tokens, const TopkRows& rows, std::uint32_t k) {
    const std::vector<std::int64_t> flat{tokens.rows, tokens.columns};
    const std::vector<std::int64_t> shape{tokens.rows, tokens.columns, k};
    std::vector<std::uint16_t> halves;
    for (const float value : rows.values) {
        halves.push_back(float_to_half(value));
    }
    kserve::InferResponse message;
    message.model_name = kModel;
    message.outputs.push_back(kserve::make_tensor("topk_ids", "UINT32", shape, rows.ids));
    message.outputs.push_back(kserve::make_tensor("topk_logprobs", "FP16", shape, std::move(halves)));
    message.outputs.push_back(kserve::make_tensor("tail_logprob", "FP32", flat, rows.tail));
    const auto encoded = kserve::build_infer_response(message).value();
    HttpResponse response = response_of(encoded.body);
    response.headers.push_back({std::string(kserve::kHeaderLengthField), std::to_string(*encoded.json_header_length)});
    return response;
}

}  // namespace

std::vector<DecodeCase> make_decode_cases(const DecodeOptions& options) {
    const auto buffers = std::make_shared<BufferPool>();
    const std::uint32_t k = options.top_k;
    const TokenBatch tokens = make_tokens(options.batch_size, options.sequence_length, options.vocabulary);
    const TopkRows rows = make_topk(std::size_t{tokens.rows} * tokens.columns, k, options.vocabulary);
    const TokenBatch few = make_tokens(1, options.logit_positions, options.vocabulary);
    const HttpResponse logits = response_of(seed_body(few, options.vocabulary));
    const TargetsWanted all{0, options.vocabulary};
    const TargetsWanted top{k, options.vocabulary};
    const auto codec = [&buffers](TeacherProtocol protocol, TargetsWanted wanted) {
        return codec_of(protocol, wanted, buffers);
    };
    std::vector<DecodeCase> cases;
    cases.push_back({"seed_logits", AnswerForm::logits, codec(TeacherProtocol::seed, all), few, logits});
    cases.push_back({"seed_logits_reduced", AnswerForm::logits, codec(TeacherProtocol::seed, top), few, logits});
    cases.push_back({"kserve_json_topk", AnswerForm::tensors, codec(TeacherProtocol::kserve, top), tokens,
                     response_of(kserve_body(tokens, rows, k))});
    cases.push_back({"vllm_prompt_logprobs", AnswerForm::prompt_logprobs, codec(TeacherProtocol::vllm, top), tokens,
                     response_of(vllm_body(tokens, rows, k))});
    cases.push_back({"kserve_binary_topk", AnswerForm::binary, codec(TeacherProtocol::kserve, top), tokens,
                     binary_response(tokens, rows, k)});
    return cases;
}

}  // namespace distilld::bench
