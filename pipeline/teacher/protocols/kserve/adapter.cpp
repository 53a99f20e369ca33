#include <algorithm>
#include <charconv>
#include <limits>

#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/target_rows.hpp"
#include "pipeline/teacher/teacher_adapter.hpp"

namespace distilld {
namespace {

using kserve::InferTensor;

/// Text of one number in JSON with what surrounds it, at most.
constexpr std::uint64_t kJsonNumberBytes = 32;
constexpr std::uint64_t kMessageBytes = 64U << 10U;

/// Inputs that we know how to fill. The first two are our own teacher's, the next three TensorRT-LLM's, the last two
/// are how some models take k.
constexpr std::string_view kKnownInputs[] = {
    "input_ids", "seq_lens", "input_lengths", "request_output_len", "return_context_logits", "top_k", "k"};

/// How the batch's rank-1 values are shaped: metadata says [B] or [B, 1].
std::vector<std::int64_t> per_sequence_shape(const kserve::TensorSpec& spec, std::uint32_t rows) {
    if (spec.shape.size() >= 2) {
        return {rows, 1};
    }
    return {rows};
}

/// Integers in the datatype that the model declares.
Result<InferTensor> integer_tensor(const kserve::TensorSpec& spec, std::vector<std::int64_t> shape,
                                   std::vector<std::int32_t> values, bool binary) {
    if (spec.datatype == "INT32" || spec.datatype == "UINT32") {
        return kserve::make_tensor(spec.name, spec.datatype, std::move(shape), std::move(values), binary);
    }
    if (spec.datatype == "INT64" || spec.datatype == "UINT64") {
        std::vector<std::int64_t> wide(values.begin(), values.end());
        return kserve::make_tensor(spec.name, spec.datatype, std::move(shape), std::move(wide), binary);
    }
    return teacher_error("input '" + spec.name + "' has datatype " + spec.datatype + ", an integer is needed");
}

std::optional<ElementType> float_type(std::string_view datatype) {
    if (datatype == "FP16") {
        return ElementType::f16;
    }
    if (datatype == "BF16") {
        return ElementType::bf16;
    }
    if (datatype == "FP32") {
        return ElementType::f32;
    }
    return std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) {
        text += (i > 0 ? "," : "") + std::to_string(shape[i]);
    }
    return text + "]";
}

/// Arrays that had to be converted, beside what the response holds.
struct Holder {
    std::shared_ptr<const void> body;
    std::vector<std::shared_ptr<const void>> parts;
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<std::int32_t>> integers;
};

/// A view of a float tensor; FP64 is narrowed to f32.
Result<ArrayView> float_view(const InferTensor& tensor, Holder& holder) {
    if (const auto type = float_type(tensor.datatype)) {
        holder.parts.push_back(tensor.owner);
        return ArrayView{*type, tensor.bytes};
    }
    if (tensor.datatype == "FP64") {
        const auto wide = kserve::copy_elements<double>(tensor);
        const auto& narrow = holder.floats.emplace_back(wide.begin(), wide.end());
        return ArrayView{ElementType::f32, std::as_bytes(std::span(narrow))};
    }
    return teacher_error("output '" + tensor.name + "' has datatype " + tensor.datatype +
                         ", a floating-point type is needed");
}

/// A view of ids; 64-bit ones are narrowed.
Result<ArrayView> id_view(const InferTensor& tensor, Holder& holder) {
    if (tensor.datatype == "INT32" || tensor.datatype == "UINT32") {
        holder.parts.push_back(tensor.owner);
        return ArrayView{tensor.datatype == "INT32" ? ElementType::i32 : ElementType::u32, tensor.bytes};
    }
    if (tensor.datatype == "INT64" || tensor.datatype == "UINT64") {
        auto& narrow = holder.integers.emplace_back();
        for (const std::int64_t id : kserve::copy_elements<std::int64_t>(tensor)) {
            if (id < 0 || id > std::numeric_limits<std::int32_t>::max()) {
                return teacher_error("output '" + tensor.name + "' holds the token id " + std::to_string(id));
            }
            narrow.push_back(static_cast<std::int32_t>(id));
        }
        return ArrayView{ElementType::i32, std::as_bytes(std::span(narrow))};
    }
    return teacher_error("output '" + tensor.name + "' has datatype " + tensor.datatype +
                         ", an integer type is needed");
}

class KserveAdapter final : public TeacherAdapter {
  public:
    KserveAdapter(const EndpointUrl& url, const TargetsWanted& wanted, KserveDialect dialect, std::string logits_output)
        : target_(url.target()),
          wanted_(wanted),
          dialect_(std::move(dialect)),
          logits_output_(std::move(logits_output)) {}

    Result<HttpRequest> make_request(const TokenBatch& tokens) const override {
        kserve::InferRequest message;
        if (auto filled = add_inputs(message, tokens); !filled) {
            return filled.error();
        }
        for (const std::string& name : output_names()) {
            message.outputs.push_back(kserve::RequestedOutput{name, true});
        }
        auto encoded = kserve::build_infer_request(message);
        if (!encoded) {
            return encoded.error();
        }
        HttpRequest request;
        request.target = target_;
        request.content_type = std::string(encoded->content_type());
        request.kserve_header_length = encoded->json_header_length;
        request.body = std::make_shared<const std::string>(std::move(encoded->body));
        request.response_limit = std::min(wanted_.response_limit, expected_bytes(tokens));
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens) const override {
        std::optional<std::size_t> header_length;
        if (response.kserve_header_length) {
            const std::string& text = *response.kserve_header_length;
            std::size_t length = 0;
            const auto parsed = std::from_chars(text.data(), text.data() + text.size(), length);
            if (parsed.ec != std::errc{} || parsed.ptr != text.data() + text.size()) {
                return teacher_error(std::string(kserve::kHeaderLengthField) + " is not a number");
            }
            header_length = length;
        }
        kserve::MessageLimits limits;
        limits.max_json_bytes = response.body->size();
        limits.max_tensor_bytes = std::max<std::uint64_t>(std::uint64_t{response.body->size()} * 4, 1024);
        const auto message = kserve::parse_infer_response(response.body->bytes(), header_length, limits, response.body,
                                                          BodyBuffer::kPadding);
        if (!message) {
            return message.error();
        }
        auto holder = std::make_shared<Holder>();
        holder->body = response.body;
        // Converted arrays must not move once a view points at them.
        holder->floats.reserve(3);
        holder->integers.reserve(1);
        auto targets =
            logits_output_.empty() ? topk_of(*message, tokens, *holder) : logits_of(*message, tokens, *holder);
        if (!targets) {
            return targets;
        }
        targets->held_bytes = response.body->capacity();
        for (const auto& tensor : message->outputs) {
            targets->held_bytes += tensor.binary ? 0 : tensor.bytes.size();
        }
        targets->owner = holder;
        if (const auto said = message->parameters.find("vocab_size"); said != message->parameters.end()) {
            const auto* number = std::get_if<std::int64_t>(&said->second);
            if (number != nullptr && *number > 0) {
                targets->vocabulary = static_cast<std::uint64_t>(*number);
            }
        }
        if (!logits_output_.empty() && wanted_.top_k > 0) {
            if (wanted_.vocabulary != 0 && targets->width != wanted_.vocabulary) {
                return teacher_error(*find_defect(*targets, wanted_.vocabulary));
            }
            return reduce_logits(*targets, wanted_.top_k);
        }
        return targets;
    }

    std::string description() const override {
        std::string text = "KServe v2, ";
        if (logits_output_.empty()) {
            text += "top " + std::to_string(dialect_.honoured_k != 0 ? dialect_.honoured_k : asked_k());
        } else {
            text += "'" + logits_output_ + "'";
            if (wanted_.top_k > 0) {
                text += " reduced to the top " + std::to_string(wanted_.top_k);
            }
        }
        text += dialect_.binary_input ? ", binary requests" : ", JSON requests";
        text += dialect_.binary_output ? ", binary answers" : ", JSON answers";
        return text;
    }

  private:
    [[nodiscard]] std::uint32_t asked_k() const {
        return wanted_.vocabulary == 0 ? wanted_.top_k : std::min(wanted_.top_k, wanted_.vocabulary);
    }

    [[nodiscard]] std::vector<std::string> output_names() const {
        if (!logits_output_.empty()) {
            return {logits_output_};
        }
        std::vector<std::string> names{"topk_ids", "topk_logprobs"};
        if (dialect_.metadata.find_output("tail_logprob") != nullptr) {
            names.emplace_back("tail_logprob");
        }
        return names;
    }

    /// One input of the model; nothing when this form of request leaves it out.
    [[nodiscard]] Result<std::optional<InferTensor>> input_tensor(const kserve::TensorSpec& spec,
                                                                  const TokenBatch& tokens) const {
        const bool binary = dialect_.binary_input;
        const auto integers = [&](std::vector<std::int64_t> shape,
                                  std::vector<std::int32_t> values) -> Result<std::optional<InferTensor>> {
            auto tensor = integer_tensor(spec, std::move(shape), std::move(values), binary);
            if (!tensor) {
                return tensor.error();
            }
            return std::optional<InferTensor>(std::move(*tensor));
        };
        if (spec.name == "input_ids") {
            return integers({tokens.rows, tokens.columns}, tokens.input_ids);
        }
        if (spec.name == "seq_lens") {
            return integers(per_sequence_shape(spec, tokens.rows), tokens.lengths);
        }
        if (spec.name == "input_lengths") {
            // The padded length: padding stands on the right, so it cannot change an earlier row, and the answer
            // keeps the shape [B, T, V].
            return integers(per_sequence_shape(spec, tokens.rows),
                            std::vector<std::int32_t>(tokens.rows, static_cast<std::int32_t>(tokens.columns)));
        }
        if (spec.name == "request_output_len") {
            return integers(per_sequence_shape(spec, tokens.rows), std::vector<std::int32_t>(tokens.rows, 1));
        }
        if (spec.name == "return_context_logits") {
            return std::optional<InferTensor>(kserve::make_tensor(spec.name, "BOOL",
                                                                  per_sequence_shape(spec, tokens.rows),
                                                                  std::vector<std::uint8_t>(tokens.rows, 1), binary));
        }
        if (logits_output_.empty() && (spec.name == "top_k" || spec.name == "k")) {
            return integers({1}, {static_cast<std::int32_t>(asked_k())});
        }
        return std::optional<InferTensor>();
    }

    [[nodiscard]] Result<void> add_inputs(kserve::InferRequest& message, const TokenBatch& tokens) const {
        for (const auto& spec : dialect_.metadata.inputs) {
            auto tensor = input_tensor(spec, tokens);
            if (!tensor) {
                return tensor.error();
            }
            if (*tensor) {
                message.inputs.push_back(std::move(**tensor));
            }
        }
        // Parameters are for our own teacher; TensorRT-LLM's take none, and others ignore what they do not know.
        if (logits_output_.empty()) {
            message.parameters["mode"] = std::string("topk");
            message.parameters["top_k"] = std::int64_t{asked_k()};
        } else if (logits_output_ == "logits") {
            message.parameters["mode"] = std::string("logits");
        }
        return {};
    }

    [[nodiscard]] std::uint64_t expected_bytes(const TokenBatch& tokens) const {
        if (wanted_.probing) {
            return wanted_.response_limit;
        }
        const std::uint64_t positions = std::uint64_t{tokens.rows} * tokens.columns;
        if (!logits_output_.empty()) {
            const std::uint64_t width = dialect_.binary_output ? 8 : kJsonNumberBytes;
            return wanted_.vocabulary == 0 ? wanted_.response_limit
                                           : positions * wanted_.vocabulary * width + kMessageBytes;
        }
        const std::uint64_t k = std::max(asked_k(), dialect_.honoured_k);
        return dialect_.binary_output ? positions * (k * 16 + 16) + kMessageBytes
                                      : positions * (2 * k + 1) * kJsonNumberBytes + kMessageBytes;
    }

    [[nodiscard]] Result<const InferTensor*> output(const kserve::InferResponse& message, std::string_view name) const {
        const InferTensor* tensor = message.find(name);
        if (tensor == nullptr) {
            return teacher_error("the answer has no output '" + std::string(name) + "'");
        }
        return tensor;
    }

    /// The last dimension of [B, T, n].
    [[nodiscard]] Result<std::uint32_t> width_of(const InferTensor& tensor, const TokenBatch& tokens) const {
        const auto& shape = tensor.shape;
        if (shape.size() != 3 || shape[0] != std::int64_t{tokens.rows} || shape[1] != std::int64_t{tokens.columns} ||
            shape[2] < 1 || shape[2] > std::numeric_limits<std::int32_t>::max()) {
            return teacher_error("output '" + tensor.name + "' has shape " + shape_text(shape) + ", expected [" +
                                 std::to_string(tokens.rows) + "," + std::to_string(tokens.columns) + ",n]");
        }
        return static_cast<std::uint32_t>(shape[2]);
    }

    [[nodiscard]] Result<TeacherTargets> topk_of(const kserve::InferResponse& message, const TokenBatch& tokens,
                                                 Holder& holder) const {
        const auto ids = output(message, "topk_ids");
        if (!ids) {
            return ids.error();
        }
        const auto values = output(message, "topk_logprobs");
        if (!values) {
            return values.error();
        }
        const auto width = width_of(**ids, tokens);
        if (!width) {
            return width.error();
        }
        if ((*values)->shape != (*ids)->shape) {
            return teacher_error("output 'topk_logprobs' has shape " + shape_text((*values)->shape) +
                                 ", 'topk_ids' has " + shape_text((*ids)->shape));
        }
        if (dialect_.honoured_k != 0 && *width != dialect_.honoured_k) {
            return teacher_error("the answer has " + std::to_string(*width) + " entries a position, the probe found " +
                                 std::to_string(dialect_.honoured_k));
        }
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::topk;
        targets.rows = tokens.rows;
        targets.columns = tokens.columns;
        targets.width = *width;
        const auto id_array = id_view(**ids, holder);
        if (!id_array) {
            return id_array.error();
        }
        targets.ids = *id_array;
        const auto value_array = float_view(**values, holder);
        if (!value_array) {
            return value_array.error();
        }
        targets.values = *value_array;
        if (const InferTensor* tail = message.find("tail_logprob")) {
            if (tail->shape != std::vector<std::int64_t>{tokens.rows, tokens.columns}) {
                return teacher_error("output 'tail_logprob' has shape " + shape_text(tail->shape) + ", expected [" +
                                     std::to_string(tokens.rows) + "," + std::to_string(tokens.columns) + "]");
            }
            const auto tail_array = tail_view(*tail, holder);
            if (!tail_array) {
                return tail_array.error();
            }
            targets.tail = *tail_array;
        }
        return targets;
    }

    /// The tail is f32 by contract.
    [[nodiscard]] Result<ArrayView> tail_view(const InferTensor& tensor, Holder& holder) const {
        const auto view = float_view(tensor, holder);
        if (!view || view->type == ElementType::f32) {
            return view;
        }
        auto& wide = holder.floats.emplace_back();
        const std::size_t count = view->bytes.size() / element_size(view->type);
        for (std::size_t i = 0; i < count; ++i) {
            wide.push_back(element_as_float(*view, i));
        }
        return ArrayView{ElementType::f32, std::as_bytes(std::span(wide))};
    }

    [[nodiscard]] Result<TeacherTargets> logits_of(const kserve::InferResponse& message, const TokenBatch& tokens,
                                                   Holder& holder) const {
        const auto logits = output(message, logits_output_);
        if (!logits) {
            return logits.error();
        }
        const auto width = width_of(**logits, tokens);
        if (!width) {
            return width.error();
        }
        const auto view = float_view(**logits, holder);
        if (!view) {
            return view.error();
        }
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::logits;
        targets.rows = tokens.rows;
        targets.columns = tokens.columns;
        targets.width = *width;
        targets.values = *view;
        return targets;
    }

    std::string target_;
    TargetsWanted wanted_;
    KserveDialect dialect_;
    std::string logits_output_;  ///< empty = top-k outputs
};

std::string names_of(const std::vector<kserve::TensorSpec>& specs) {
    std::string names;
    for (const auto& spec : specs) {
        names += (names.empty() ? "" : ", ") + spec.name;
    }
    return names.empty() ? "none" : names;
}

}  // namespace

kserve::ModelMetadata own_teacher_metadata(const std::string& model) {
    kserve::ModelMetadata metadata;
    metadata.name = model;
    metadata.inputs = {{"input_ids", "INT32", {-1, -1}}, {"seq_lens", "INT32", {-1}}};
    metadata.outputs = {{"topk_ids", "UINT32", {-1, -1, -1}},
                        {"topk_logprobs", "FP16", {-1, -1, -1}},
                        {"tail_logprob", "FP32", {-1, -1}},
                        {"logits", "FP16", {-1, -1, -1}}};
    return metadata;
}

Result<std::unique_ptr<TeacherAdapter>> make_kserve_adapter(const EndpointUrl& url, const TargetsWanted& wanted,
                                                            KserveDialect dialect) {
    const kserve::ModelMetadata& metadata = dialect.metadata;
    if (metadata.find_input("input_ids") == nullptr) {
        return teacher_error("the model has no input 'input_ids' (its inputs: " + names_of(metadata.inputs) + ")");
    }
    for (const auto& spec : metadata.inputs) {
        if (std::find(std::begin(kKnownInputs), std::end(kKnownInputs), spec.name) == std::end(kKnownInputs)) {
            // Triton's metadata does not say which inputs are optional (TensorRT-LLM has dozens): left out.
            continue;
        }
        const bool flag = spec.name == "return_context_logits";
        const bool fits = flag ? spec.datatype == "BOOL" : spec.datatype.find("INT") != std::string::npos;
        if (!fits) {
            return teacher_error("input '" + spec.name + "' has datatype " + spec.datatype + ", " +
                                 (flag ? "BOOL" : "an integer") + " is needed");
        }
    }
    const bool has_topk =
        metadata.find_output("topk_ids") != nullptr && metadata.find_output("topk_logprobs") != nullptr;
    std::string logits_output;
    if (wanted.top_k == 0 || !has_topk) {
        for (const char* name : {"logits", "context_logits"}) {
            if (metadata.find_output(name) != nullptr) {
                logits_output = name;
                break;
            }
        }
        if (logits_output.empty()) {
            return teacher_error(has_topk ? std::string("the model answers with top-k only: set top_k above 0")
                                          : "the model has none of the outputs topk_ids with topk_logprobs, logits, "
                                            "context_logits (its outputs: " +
                                                names_of(metadata.outputs) + ")");
        }
    }
    return std::unique_ptr<TeacherAdapter>(
        std::make_unique<KserveAdapter>(url, wanted, std::move(dialect), std::move(logits_output)));
}

Result<KservePaths> kserve_paths(const EndpointUrl& url) {
    constexpr std::string_view kInfer = "/infer";
    const std::size_t models = url.path.rfind("/v2/models/");
    if (!url.path.ends_with(kInfer) || models == std::string::npos) {
        return invalid_input("teacher endpoint '" + url.name +
                             "': the path of a kserve endpoint ends in /v2/models/NAME/infer");
    }
    KservePaths paths;
    paths.model = url.path.substr(0, url.path.size() - kInfer.size());
    paths.ready = url.path.substr(0, models) + "/v2/health/ready";
    return paths;
}

}  // namespace distilld
