#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/core/vocabulary_fit.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/kserve/infer_http.hpp"
#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"
#include "pipeline/teacher/protocols/kserve/infer_outputs.hpp"
#include "pipeline/teacher/protocols/kserve/output_choice.hpp"

namespace distilld::kserve {
namespace {

class InferCodec final : public TeacherCodec {
  public:
    InferCodec(std::string target, TargetsWanted wanted, Dialect dialect, OutputChoice choice,
               std::shared_ptr<BufferPool> buffers)
        : target_(std::move(target)),
          wanted_(wanted),
          dialect_(std::move(dialect)),
          choice_(std::move(choice)),
          head_sha256_(head_sha256(dialect_.metadata.parameters)),
          buffers_(std::move(buffers)),
          limits_{max_rows_of(dialect_), positive_parameter(dialect_.metadata.parameters, "max_tokens")} {}

    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& tokens) const override {
        return split_rows(tokens, limits_);
    }

    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override {
        InferRequest message;
        const auto k = asks_for_topk() ? std::optional(asked_k()) : std::nullopt;
        auto inputs = make_inputs(dialect_.metadata, tokens, part, k, dialect_.binary_tensor_requests);
        if (!inputs) {
            return inputs.error();
        }
        message.inputs = std::move(*inputs);
        // Parameters are for our own teacher; TensorRT-LLM's models take none, and other servers ignore unknown ones.
        if (k) {
            message.parameters["mode"] = std::string("topk");
            message.parameters["top_k"] = std::int64_t{*k};
        } else if (choice_.output == "logits") {
            message.parameters["mode"] = std::string("logits");
        } else if (asks_for_hidden_states()) {
            message.parameters["mode"] = std::string("hidden");
        }
        for (const std::string& name : output_names()) {
            message.outputs.push_back(RequestedOutput{name, true});
        }
        return infer_http_request(target_, message);
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch&,
                                  const RequestPart& part) const override {
        const auto message = read_infer_answer(response, {parsers_.get(), buffers_.get()});
        if (!message) {
            return message.error();
        }
        auto targets =
            asks_for_topk() ? read_topk(*message, part) : read_floats(*message, choice_.output, choice_.kind, part);
        if (!targets) {
            return targets;
        }
        if (asks_for_topk() && dialect_.honoured_k != 0 && targets->width != dialect_.honoured_k) {
            return teacher_error("the answer has " + std::to_string(targets->width) +
                                 " entries per position, the probe found " + std::to_string(dialect_.honoured_k));
        }
        if (asks_for_hidden_states()) {
            if (const auto other = other_head(*message, *targets)) {
                return teacher_error(*other);
            }
        }
        targets->held_bytes = held_bytes_of(*message, *response.body);
        targets->vocabulary = positive_parameter(message->parameters, "vocab_size");
        if (choice_.kind == TeacherTargets::Kind::logits && wanted_.top_k > 0) {
            return reduced(std::move(*targets));
        }
        return targets;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const std::uint64_t positions = std::uint64_t{rows} * columns;
        const bool binary = dialect_.binary_tensor_answers;
        AnswerSize size;
        if (asks_for_topk()) {
            const std::uint64_t k = std::max(asked_k(), dialect_.honoured_k);
            const std::uint64_t numbers = positions * (2 * k + 1);
            size.max_accepted_bytes = (binary ? positions * (k * 16 + 16) : numbers * kJsonNumberBytes) + kMessageBytes;
            size.max_wire_bytes = binary
                                      ? positions * (k * (sent_bytes("topk_ids") + sent_bytes("topk_logprobs")) +
                                                     sent_bytes("tail_logprob")) +
                                            kMessageBytes
                                      : json_wire_bytes(numbers, dialect_.json_number_bytes, size.max_accepted_bytes);
            size.held_bytes = positions * (k * (element_bytes("topk_ids") + element_bytes("topk_logprobs")) +
                                           element_bytes("tail_logprob"));
            // Binary tensors are used as targets without decoding.
            size.decode_bytes = binary ? 0 : json_decode_bytes(size.held_bytes, 2 * numbers);
            return size;
        }
        const std::uint64_t width = asks_for_hidden_states() ? choice_.width : wanted_.vocabulary;
        if (width != 0) {
            const std::uint64_t numbers = positions * width;
            size.max_accepted_bytes = numbers * (binary ? 8 : kJsonNumberBytes) + kMessageBytes;
            size.max_wire_bytes = binary
                                      ? numbers * sent_bytes(choice_.output) + kMessageBytes
                                      : json_wire_bytes(numbers, dialect_.json_number_bytes, size.max_accepted_bytes);
        }
        size.held_bytes = positions * (wanted_.top_k > 0 ? reduced_row_bytes(wanted_.top_k, wanted_.vocabulary)
                                                         : width * element_bytes(choice_.output));
        if (!binary) {
            size.decode_bytes = json_decode_bytes(positions * width * sizeof(float), 2 * positions * width);
        } else if (wanted_.top_k > 0) {
            size.decode_bytes = size.held_bytes;
        }
        return size;
    }

    std::string description() const override {
        std::string text = "KServe v2, ";
        if (asks_for_topk()) {
            text += "top " + std::to_string(dialect_.honoured_k != 0 ? dialect_.honoured_k : asked_k());
        } else if (asks_for_hidden_states()) {
            text += "hidden states of " + std::to_string(choice_.width) + " values";
        } else {
            text += "'" + choice_.output + "'";
            if (wanted_.top_k > 0) {
                text += " reduced to the top " + std::to_string(wanted_.top_k);
            }
        }
        return text + transport_text(dialect_, "sequences");
    }

  private:
    [[nodiscard]] bool asks_for_topk() const noexcept { return choice_.kind == TeacherTargets::Kind::topk; }
    [[nodiscard]] bool asks_for_hidden_states() const noexcept {
        return choice_.kind == TeacherTargets::Kind::hidden_states;
    }

    [[nodiscard]] Result<TeacherTargets> reduced(TeacherTargets targets) const {
        const std::uint32_t vocabulary = targets.width;
        if (wanted_.student != 0 && vocabulary > wanted_.student) {
            auto cut = fit_vocabulary(std::move(targets), wanted_.student);
            if (!cut) {
                return cut;
            }
            targets = std::move(*cut);
        }
        auto topk = reduce_logits(targets, wanted_.top_k);
        if (topk) {
            topk->vocabulary = vocabulary;
        }
        return topk;
    }

    /// Returns what is wrong with hidden states that do not match the announced head.
    [[nodiscard]] std::optional<std::string> other_head(const InferResponse& message,
                                                        const TeacherTargets& targets) const {
        if (targets.width != choice_.width) {
            return "the hidden states have " + std::to_string(targets.width) + " values, the metadata says " +
                   std::to_string(choice_.width);
        }
        const std::string sha256 = head_sha256(message.parameters);
        if (!sha256.empty() && sha256 != head_sha256_) {
            return "the hidden states are for another head than the server had when it was probed: " + sha256 +
                   ", not " + head_sha256_;
        }
        return std::nullopt;
    }

    [[nodiscard]] std::uint32_t asked_k() const {
        return wanted_.vocabulary == 0 ? wanted_.top_k : std::min(wanted_.top_k, wanted_.vocabulary);
    }

    [[nodiscard]] std::vector<std::string> output_names() const {
        if (!asks_for_topk()) {
            return {choice_.output};
        }
        std::vector<std::string> names{"topk_ids", "topk_logprobs"};
        if (dialect_.metadata.find_output("tail_logprob") != nullptr) {
            names.emplace_back("tail_logprob");
        }
        return names;
    }

    /// Bytes of an output's element on the wire; 0 if the model lacks the output.
    [[nodiscard]] std::uint64_t sent_bytes(std::string_view output) const {
        const TensorSpec* spec = dialect_.metadata.find_output(output);
        return spec == nullptr ? 0 : datatype_size(spec->datatype).value_or(8);
    }

    /// Bytes of an output's element in memory; 0 if the model lacks the output.
    [[nodiscard]] std::uint64_t element_bytes(std::string_view output) const {
        const TensorSpec* spec = dialect_.metadata.find_output(output);
        return spec == nullptr ? 0 : held_element_bytes(spec->datatype);
    }

    std::string target_;
    TargetsWanted wanted_;
    Dialect dialect_;
    OutputChoice choice_;
    std::string head_sha256_;  ///< as announced
    std::shared_ptr<BufferPool> buffers_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
    RequestLimits limits_;
};

}  // namespace

std::uint64_t max_rows_of(const Dialect& dialect) {
    const std::uint64_t stated = positive_parameter(dialect.metadata.parameters, "max_batch_size");
    return stated != 0 ? stated : dialect.config.max_batch_size;
}

std::string transport_text(const Dialect& dialect, const char* rows) {
    std::string text = dialect.binary_tensor_requests ? ", binary requests" : ", JSON requests";
    text += dialect.binary_tensor_answers ? ", binary answers" : ", JSON answers";
    if (const std::uint64_t most = max_rows_of(dialect); most != 0) {
        text += ", at most " + std::to_string(most) + " " + rows + " a request";
    }
    return text;
}

ModelMetadata own_teacher_metadata(const std::string& model) {
    ModelMetadata metadata;
    metadata.name = model;
    metadata.inputs = {{"input_ids", "INT32", {-1, -1}}, {"seq_lens", "INT32", {-1}}};
    metadata.outputs = {{"topk_ids", "UINT32", {-1, -1, -1}},
                        {"topk_logprobs", "FP16", {-1, -1, -1}},
                        {"tail_logprob", "FP32", {-1, -1}},
                        {"logits", "FP16", {-1, -1, -1}}};
    return metadata;
}

Result<std::shared_ptr<const TeacherCodec>> make_infer_codec(const EndpointUrl& url, TargetsWanted wanted,
                                                             Dialect dialect, std::shared_ptr<BufferPool> buffers) {
    if (auto checked = check_inputs(dialect.metadata, dialect.config.required_inputs); !checked) {
        return Error{checked.error().kind, url.name + ": " + checked.error().message};
    }
    auto choice = choose_output(dialect.metadata, wanted);
    if (!choice) {
        return Error{choice.error().kind, url.name + ": " + choice.error().message};
    }
    return std::shared_ptr<const TeacherCodec>(
        std::make_shared<InferCodec>(url.target(), wanted, std::move(dialect), std::move(*choice), std::move(buffers)));
}

}  // namespace distilld::kserve
