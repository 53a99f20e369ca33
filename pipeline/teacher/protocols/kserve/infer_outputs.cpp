#include "pipeline/teacher/protocols/kserve/infer_outputs.hpp"

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/join.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld::kserve {
namespace {

/// Keeps the arrays of the targets alive: tensors of the message, and converted arrays.
struct Holder {
    std::vector<std::shared_ptr<const void>> tensors;
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<std::int32_t>> integers;

    // Converted arrays must not move while views point to them, so space for all outputs is reserved.
    Holder() {
        floats.reserve(3);
        integers.reserve(1);
    }
};

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
    return "[" + joined(shape, ",") + "]";
}

/// A view of a float tensor; FP64 is narrowed to f32.
Result<ArrayView> float_view(const InferTensor& tensor, Holder& holder) {
    if (const auto type = float_type(tensor.datatype)) {
        holder.tensors.push_back(tensor.owner);
        return ArrayView{*type, tensor.bytes};
    }
    if (tensor.datatype == "FP64") {
        const auto wide = copy_elements<double>(tensor);
        const auto& narrow = holder.floats.emplace_back(wide.begin(), wide.end());
        return ArrayView{ElementType::f32, std::as_bytes(std::span(narrow))};
    }
    return teacher_error("output '" + tensor.name + "' has datatype " + tensor.datatype +
                         ", a floating-point type is needed");
}

/// The tail must be f32.
Result<ArrayView> tail_view(const InferTensor& tensor, Holder& holder) {
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

/// A view of ids; 64-bit ids are narrowed.
Result<ArrayView> id_view(const InferTensor& tensor, Holder& holder) {
    if (tensor.datatype == "INT32" || tensor.datatype == "UINT32") {
        holder.tensors.push_back(tensor.owner);
        return ArrayView{tensor.datatype == "INT32" ? ElementType::i32 : ElementType::u32, tensor.bytes};
    }
    if (tensor.datatype == "INT64" || tensor.datatype == "UINT64") {
        auto& narrow = holder.integers.emplace_back();
        for (const std::int64_t id : copy_elements<std::int64_t>(tensor)) {
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

Result<const InferTensor*> output(const InferResponse& message, std::string_view name) {
    const InferTensor* tensor = message.find(name);
    if (tensor == nullptr) {
        return teacher_error("the answer has no output '" + std::string(name) + "'");
    }
    return tensor;
}

/// The last dimension of [B, T, n].
Result<std::uint32_t> width_of(const InferTensor& tensor, const RequestPart& part) {
    const auto& shape = tensor.shape;
    if (shape.size() != 3 || shape[0] != std::int64_t{part.rows} || shape[1] != std::int64_t{part.columns} ||
        shape[2] < 1 || shape[2] > std::numeric_limits<std::int32_t>::max()) {
        return teacher_error("output '" + tensor.name + "' has shape " + shape_text(shape) + ", expected [" +
                             std::to_string(part.rows) + "," + std::to_string(part.columns) + ",n]");
    }
    return static_cast<std::uint32_t>(shape[2]);
}

TeacherTargets targets_of(TeacherTargets::Kind kind, const RequestPart& part, std::uint32_t width) {
    TeacherTargets targets;
    targets.kind = kind;
    targets.rows = part.rows;
    targets.columns = part.columns;
    targets.width = width;
    return targets;
}

}  // namespace

Result<TeacherTargets> read_topk(const InferResponse& message, const RequestPart& part) {
    const auto ids = output(message, "topk_ids");
    if (!ids) {
        return ids.error();
    }
    const auto values = output(message, "topk_logprobs");
    if (!values) {
        return values.error();
    }
    const auto width = width_of(**ids, part);
    if (!width) {
        return width.error();
    }
    if ((*values)->shape != (*ids)->shape) {
        return teacher_error("output 'topk_logprobs' has shape " + shape_text((*values)->shape) + ", 'topk_ids' has " +
                             shape_text((*ids)->shape));
    }
    auto holder = std::make_shared<Holder>();
    TeacherTargets targets = targets_of(TeacherTargets::Kind::topk, part, *width);
    const auto id_array = id_view(**ids, *holder);
    if (!id_array) {
        return id_array.error();
    }
    targets.ids = *id_array;
    const auto value_array = float_view(**values, *holder);
    if (!value_array) {
        return value_array.error();
    }
    targets.values = *value_array;
    if (const InferTensor* tail = message.find("tail_logprob")) {
        if (tail->shape != std::vector<std::int64_t>{part.rows, part.columns}) {
            return teacher_error("output 'tail_logprob' has shape " + shape_text(tail->shape) + ", expected [" +
                                 std::to_string(part.rows) + "," + std::to_string(part.columns) + "]");
        }
        const auto tail_array = tail_view(*tail, *holder);
        if (!tail_array) {
            return tail_array.error();
        }
        targets.tail = *tail_array;
    }
    targets.owner = std::move(holder);
    return targets;
}

Result<TeacherTargets> read_floats(const InferResponse& message, std::string_view output_name,
                                   TeacherTargets::Kind kind, const RequestPart& part) {
    const auto values = output(message, output_name);
    if (!values) {
        return values.error();
    }
    const auto width = width_of(**values, part);
    if (!width) {
        return width.error();
    }
    auto holder = std::make_shared<Holder>();
    const auto view = float_view(**values, *holder);
    if (!view) {
        return view.error();
    }
    TeacherTargets targets = targets_of(kind, part, *width);
    targets.values = *view;
    targets.owner = std::move(holder);
    return targets;
}

std::uint64_t held_element_bytes(std::string_view datatype) noexcept {
    const std::uint64_t sent = datatype_size(datatype).value_or(sizeof(float));
    // 8-byte elements are narrowed into separate arrays, in addition to the body.
    return sent == 8 ? sent + 4 : sent;
}

}  // namespace distilld::kserve
