#include "pipeline/teacher/protocols/kserve/sample_codec.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/join.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/kserve/infer_http.hpp"
#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"

namespace distilld::kserve {
namespace {

bool is_floating(ElementType type) {
    return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32 ||
           type == ElementType::f64;
}

class SampleCodec final : public TeacherCodec {
  public:
    SampleCodec(const EndpointUrl& url, SampleNames names, Dialect dialect, std::shared_ptr<BufferPool> buffers)
        : target_(url.target()),
          names_(std::move(names)),
          dialect_(std::move(dialect)),
          buffers_(std::move(buffers)),
          limits_{max_rows_of(dialect_), 0} {}

    Result<std::vector<RequestPart>> plan_requests(const TokenBatch& samples) const override {
        return split_rows(samples, limits_);
    }

    Result<HttpRequest> make_request(const TokenBatch& samples, const RequestPart& part) const override {
        InferRequest message;
        for (const std::string& name : names_.inputs) {
            const SampleTensor* tensor = find_tensor(samples.tensors, name);
            if (tensor == nullptr) {
                return invalid_input("/teacher/inputs: the data has no tensor \"" + name + "\"");
            }
            Result<InferTensor> input = input_of(*tensor, part);
            if (!input) {
                return input.error();
            }
            message.inputs.push_back(std::move(*input));
        }
        for (const std::string& name : names_.outputs) {
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
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::tensors;
        targets.rows = part.rows;
        targets.columns = part.columns;
        auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
        for (const std::string& name : names_.outputs) {
            const InferTensor* tensor = message->find(name);
            if (tensor == nullptr) {
                return teacher_error("the answer has no output '" + name + "'");
            }
            const auto type = value_of(kSampleDatatypes, tensor->datatype);
            if (!type || !is_floating(*type)) {
                return teacher_error("output '" + name + "' has datatype " + tensor->datatype +
                                     ", a floating-point type is needed");
            }
            if (tensor->shape.empty() || tensor->shape.front() != std::int64_t{part.rows}) {
                return teacher_error("output '" + name + "' has the shape [" + joined(tensor->shape, ",") +
                                     "], the request had " + std::to_string(part.rows) + " samples");
            }
            targets.tensors.push_back({name, {tensor->shape.begin() + 1, tensor->shape.end()}, {*type, tensor->bytes}});
            owners->push_back(tensor->owner);
        }
        targets.held_bytes = held_bytes_of(*message, *response.body);
        targets.owner = std::move(owners);
        return targets;
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t) const override {
        AnswerSize size;
        size.held_bytes = rows * dialect_.sample_bytes;
        if (dialect_.sample_bytes == 0) {  // before the probe
            return size;
        }
        if (dialect_.binary_tensor_answers) {
            size.max_wire_bytes = size.held_bytes + kMessageBytes;
            return size;
        }
        const std::uint64_t numbers = size.held_bytes / sizeof(std::uint16_t);  // at most
        size.max_accepted_bytes = numbers * kJsonNumberBytes + kMessageBytes;
        size.max_wire_bytes = size.max_accepted_bytes;
        size.decode_bytes = json_decode_bytes(size.held_bytes, 2 * numbers);
        return size;
    }

    std::string description() const override {
        return "KServe v2, outputs " + joined(names_.outputs, ", ") + transport_text(dialect_, "samples");
    }

  private:
    /// The rows of a part, in the datatype that the model declares.
    [[nodiscard]] Result<InferTensor> input_of(const SampleTensor& tensor, const RequestPart& part) const {
        const TensorSpec* spec = dialect_.metadata.find_input(tensor.name);
        const std::string own(name_of(kSampleDatatypes, tensor.values.type));
        const bool any =
            spec == nullptr || spec->datatype.empty() || dialect_.metadata.parameters.contains(kAnyDatatype);
        const std::string& wanted = any ? own : spec->datatype;
        const bool binary = dialect_.binary_tensor_requests;
        std::vector<std::int64_t> shape{part.rows};
        shape.insert(shape.end(), tensor.sample_shape.begin(), tensor.sample_shape.end());
        const std::size_t each = element_count(tensor.sample_shape).value_or(0);
        const std::size_t first = part.first_row * each;
        const std::size_t count = part.rows * each;
        if (wanted == own) {
            const std::size_t size = element_size(tensor.values.type);
            // The request is encoded while the batch is there, so the tensor needs no owner.
            return InferTensor{
                tensor.name, own,   std::move(shape), tensor.values.bytes.subspan(first * size, count * size),
                {},          binary};
        }
        const auto type = value_of(kSampleDatatypes, wanted);
        if (!type || !is_floating(*type) || !is_floating(tensor.values.type)) {
            return invalid_input("/teacher/inputs: \"" + tensor.name + "\" is " + wanted + " at the model, and " + own +
                                 " in the data");
        }
        auto bytes = std::make_shared<std::vector<std::byte>>();
        append_converted(*bytes, tensor.values, first, count, *type);
        return InferTensor{tensor.name, wanted, std::move(shape), *bytes, bytes, binary};
    }

    std::string target_;
    SampleNames names_;
    Dialect dialect_;
    std::shared_ptr<BufferPool> buffers_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
    RequestLimits limits_;
};

}  // namespace

Result<std::shared_ptr<const TeacherCodec>> make_sample_codec(const EndpointUrl& url, SampleNames names,
                                                              Dialect dialect, std::shared_ptr<BufferPool> buffers) {
    const ModelMetadata& model = dialect.metadata;
    const auto missing = [&](const char* field, const char* what, const std::string& name,
                             const std::vector<TensorSpec>& specs) {
        return teacher_error(url.name + ": " + field + ": the model has no " + what + " \"" + name + "\" (it has " +
                             names_of(specs) + ")");
    };
    // A model whose metadata is not known yet, or names none, is asked all the same.
    for (const std::string& name : names.inputs) {
        if (!model.inputs.empty() && model.find_input(name) == nullptr) {
            return missing("/teacher/inputs", "input", name, model.inputs);
        }
    }
    for (const std::string& name : names.outputs) {
        if (!model.outputs.empty() && model.find_output(name) == nullptr) {
            return missing("/teacher/outputs", "output", name, model.outputs);
        }
    }
    for (const std::string& name : dialect.config.required_inputs) {
        if (std::ranges::find(names.inputs, name) == names.inputs.end()) {
            return teacher_error(url.name + ": /teacher/inputs: lacks \"" + name + "\", which the model requires");
        }
    }
    return std::shared_ptr<const TeacherCodec>(
        std::make_shared<SampleCodec>(url, std::move(names), std::move(dialect), std::move(buffers)));
}

}  // namespace distilld::kserve
