#include "models/training/staging.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "models/losses/topk_targets.hpp"
#include "models/training/teacher_head_tensor.hpp"
#include "pipeline/core/row_documents.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

[[noreturn]] void refuse(ErrorKind kind, std::uint64_t number, const std::string& what) {
    throw ErrorException(Error{kind, "micro-batch " + std::to_string(number) + ": " + what});
}

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

/// `count` floats from possibly unaligned bytes.
template <class T>
void widen_floats(const std::byte* from, std::size_t count, float* to) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<float>(load<T>(from + i * sizeof(T)));
    }
}

bool is_float(ElementType type) {
    return type == ElementType::f16 || type == ElementType::bf16 || type == ElementType::f32;
}

void read_floats(ElementType type, const std::byte* from, std::size_t count, float* to) {
    switch (type) {
        case ElementType::f16:
            widen_floats<c10::Half>(from, count, to);
            break;
        case ElementType::bf16:
            widen_floats<c10::BFloat16>(from, count, to);
            break;
        default:
            std::memcpy(to, from, count * sizeof(float));
            break;
    }
}

template <class T>
void widen_ids(const std::byte* from, std::size_t count, std::int64_t* to) {
    for (std::size_t i = 0; i < count; ++i) {
        to[i] = static_cast<std::int64_t>(load<T>(from + i * sizeof(T)));
    }
}

void read_ids(ElementType type, const std::byte* from, std::size_t count, std::int64_t* to) {
    switch (type) {
        case ElementType::i32:
            widen_ids<std::int32_t>(from, count, to);
            break;
        case ElementType::u32:
            widen_ids<std::uint32_t>(from, count, to);
            break;
        default:
            widen_ids<std::int64_t>(from, count, to);
            break;
    }
}

/// One stage_micro_batch call.
class Staging {
  public:
    Staging(const MicroBatch& batch, const StagingOptions& options)
        : tokens_(*batch.tokens), batch_(batch), options_(options), staged_(std::make_unique<TensorBatch>()) {}

    std::unique_ptr<TensorBatch> run() {
        if (options_.ring != nullptr) {
            options_.ring->begin();
        }
        if (options_.with_teacher) {
            if (!batch_.targets) {
                refuse(ErrorKind::internal, tokens_.number, "there are no teacher targets");
            }
            check_teacher(*batch_.targets);
            given_ = batch_.targets->loss_mask.bytes;
        }
        stage_tokens();
        if (options_.with_teacher) {
            stage_teacher(*batch_.targets);
        }
        if (options_.ring != nullptr) {
            staged_->copies = options_.ring->end();
        }
        staged_->number = tokens_.number;
        staged_->target_tokens = positions_.size();
        staged_->step_target_tokens = batch_.step_target_tokens;
        return std::move(staged_);
    }

  private:
    [[nodiscard]] std::size_t position_count() const {
        return static_cast<std::size_t>(tokens_.rows) * tokens_.columns;
    }

    /// A host tensor that will be copied to the device.
    [[nodiscard]] Tensor made(at::IntArrayRef sizes, torch::ScalarType type) const {
        return options_.ring != nullptr ? options_.ring->host(sizes, type) : torch::empty(sizes, type);
    }

    Tensor to_device(Tensor tensor) const {
        if (options_.ring != nullptr) {
            return options_.ring->to_device(tensor);
        }
        return options_.device.is_cpu() ? std::move(tensor) : tensor.to(options_.device);
    }

    void stage_tokens() {
        const std::size_t count = position_count();
        if (count == 0 || tokens_.input_ids.size() != count || tokens_.labels.size() != count) {
            refuse(ErrorKind::internal, tokens_.number,
                   "input_ids and labels are not [" + std::to_string(tokens_.rows) + ", " +
                       std::to_string(tokens_.columns) + "]");
        }
        if (!tokens_.documents.empty()) {
            stage_documents();
            return;
        }
        Tensor ids = made({tokens_.rows, tokens_.columns}, torch::kLong);
        labels_.reserve(count);
        positions_.reserve(count);
        stage_run(0, count, ids.mutable_data_ptr<std::int64_t>());
        staged_->input_ids = to_device(std::move(ids));
        staged_->targets.labels = to_device(vector_tensor(labels_));
        if (positions_.size() != count) {
            staged_->rows = to_device(vector_tensor(positions_));
        }
    }

    /// Stages the positions from `first` on and writes their ids to `out`.
    void stage_run(std::size_t first, std::size_t count, std::int64_t* out) {
        for (std::size_t i = first; i < first + count; ++i) {
            *out++ = checked(tokens_.input_ids[i], "input id");
            if (tokens_.labels[i] != kIgnoredLabel && is_given(i)) {
                labels_.push_back(checked(tokens_.labels[i], "label"));
                positions_.push_back(static_cast<std::int64_t>(i));
            }
        }
    }

    /// Puts documents of equal length next to each other, so that attention can treat them as a batch.
    void stage_documents() {
        std::vector<RowDocument> documents = tokens_.documents;
        std::ranges::sort(documents, longest_first);
        std::size_t all = 0;
        for (const RowDocument& document : documents) {
            all += document.length;
            if (document.length == 0 || document.row >= tokens_.rows || document.length > tokens_.columns ||
                document.begin > tokens_.columns - document.length || all > position_count()) {
                refuse(ErrorKind::internal, tokens_.number, "a document does not lie in its row");
            }
        }
        Tensor ids = made({1, static_cast<std::int64_t>(all)}, torch::kLong);
        auto* const out = ids.mutable_data_ptr<std::int64_t>();
        std::vector<std::int64_t> rows;
        std::size_t begin = 0;
        for (const RowDocument& document : documents) {
            const std::size_t first = std::size_t{document.row} * tokens_.columns + document.begin;
            const std::size_t before = positions_.size();
            stage_run(first, document.length, out + begin);
            for (std::size_t i = before; i < positions_.size(); ++i) {
                rows.push_back(positions_[i] - static_cast<std::int64_t>(first) + static_cast<std::int64_t>(begin));
            }
            begin += document.length;
            if (staged_->documents.empty() || staged_->documents.back().length != document.length) {
                staged_->documents.push_back({0, document.length});
            }
            ++staged_->documents.back().count;
        }
        staged_->input_ids = to_device(std::move(ids));
        staged_->targets.labels = to_device(vector_tensor(labels_));
        if (rows.size() != all) {
            staged_->rows = to_device(vector_tensor(rows));
        }
    }

    /// Whether the teacher answered for this position, or there is no teacher.
    [[nodiscard]] bool is_given(std::size_t position) const {
        return given_.empty() || given_[position] != std::byte{0};
    }

    std::int64_t checked(std::int64_t id, const char* what) const {
        if (id < 0 || id >= options_.vocabulary_size) {
            refuse(ErrorKind::invalid_input, tokens_.number,
                   std::string(what) + " " + std::to_string(id) + " is outside the student's vocabulary of " +
                       std::to_string(options_.vocabulary_size));
        }
        return id;
    }

    [[nodiscard]] Tensor vector_tensor(const std::vector<std::int64_t>& values) const {
        Tensor tensor = made({static_cast<std::int64_t>(values.size())}, torch::kLong);
        if (!values.empty()) {
            std::memcpy(tensor.mutable_data_ptr(), values.data(), values.size() * sizeof(std::int64_t));
        }
        return tensor;
    }

    void require(const ArrayView& array, bool type_ok, std::size_t elements, const char* name) const {
        if (!type_ok || array.bytes.size() != elements * element_size(array.type)) {
            refuse(ErrorKind::teacher, tokens_.number,
                   std::string("the teacher's ") + name + " have the wrong type or " +
                       std::to_string(array.bytes.size()) + " bytes for " + std::to_string(elements) + " elements");
        }
    }

    void check_teacher(const TeacherTargets& teacher) const {
        if (teacher.rows != tokens_.rows || teacher.columns != tokens_.columns || teacher.width == 0) {
            refuse(ErrorKind::teacher, tokens_.number,
                   "the teacher answered for [" + std::to_string(teacher.rows) + ", " +
                       std::to_string(teacher.columns) + "] positions, asked were [" + std::to_string(tokens_.rows) +
                       ", " + std::to_string(tokens_.columns) + "]");
        }
        if (!teacher.loss_mask.bytes.empty()) {
            require(teacher.loss_mask, teacher.loss_mask.type == ElementType::u8, position_count(), "loss masks");
        }
    }

    void stage_teacher(const TeacherTargets& teacher) {
        switch (teacher.kind) {
            case TeacherTargets::Kind::topk:
                stage_topk(teacher);
                return;
            case TeacherTargets::Kind::logits:
                stage_logits(teacher);
                return;
            case TeacherTargets::Kind::hidden_states:
                stage_hidden_states(teacher);
                return;
            case TeacherTargets::Kind::tensors:
                break;
        }
        refuse(ErrorKind::internal, tokens_.number, "unknown kind of teacher targets");
    }

    void stage_hidden_states(const TeacherTargets& teacher) {
        const Tensor& head = options_.teacher_head;
        if (!head.defined()) {
            refuse(ErrorKind::internal, tokens_.number, "there is no head for the teacher's hidden states");
        }
        if (teacher.width != head.size(1)) {
            refuse(ErrorKind::teacher, tokens_.number,
                   "the teacher's hidden states have " + std::to_string(teacher.width) + " values, its head takes " +
                       std::to_string(head.size(1)));
        }
        staged_->targets.teacher_hidden = stage_floats(teacher, "hidden states");
        staged_->targets.teacher_head = head;
    }

    void stage_logits(const TeacherTargets& teacher) {
        if (teacher.width != options_.vocabulary_size) {
            refuse(ErrorKind::teacher, tokens_.number,
                   "the teacher's logits are over " + std::to_string(teacher.width) + " tokens, the student has " +
                       std::to_string(options_.vocabulary_size));
        }
        staged_->targets.teacher_logits = stage_floats(teacher, "logits");
    }

    /// The rows [n, width] of the positions that carry loss, in the teacher's dtype.
    Tensor stage_floats(const TeacherTargets& teacher, const char* name) const {
        require(teacher.values, is_float(teacher.values.type), position_count() * teacher.width, name);
        const std::size_t row_bytes = teacher.width * element_size(teacher.values.type);
        Tensor values = made({row_count(), static_cast<std::int64_t>(teacher.width)}, float_type(teacher.values.type));
        auto* out = static_cast<std::byte*>(values.mutable_data_ptr());
        const std::byte* from = teacher.values.bytes.data();
        if (!staged_->rows.defined() && staged_->documents.empty()) {
            std::memcpy(out, from, position_count() * row_bytes);
        } else {
            for (std::size_t i = 0; i < positions_.size(); ++i) {
                std::memcpy(out + i * row_bytes, from + static_cast<std::size_t>(positions_[i]) * row_bytes, row_bytes);
            }
        }
        return to_device(std::move(values));
    }

    void stage_topk(const TeacherTargets& teacher) {
        const std::size_t k = teacher.width;
        const bool ids_typed = teacher.ids.type == ElementType::i32 || teacher.ids.type == ElementType::u32 ||
                               teacher.ids.type == ElementType::i64;
        require(teacher.ids, ids_typed, position_count() * k, "top-k ids");
        require(teacher.values, is_float(teacher.values.type), position_count() * k, "top-k log-probabilities");
        const bool with_tail = !teacher.tail.bytes.empty();
        if (with_tail) {
            require(teacher.tail, is_float(teacher.tail.type), position_count(), "tail masses");
        }
        const auto width = static_cast<std::int64_t>(k);
        Tensor ids = made({row_count(), width}, torch::kLong);
        Tensor probabilities = made({row_count(), width}, torch::kFloat);
        Tensor tail = made({row_count()}, torch::kFloat);
        Tensor entropy = made({row_count()}, torch::kFloat);
        auto* id_out = ids.mutable_data_ptr<std::int64_t>();
        auto* p_out = probabilities.mutable_data_ptr<float>();
        auto* tail_out = tail.mutable_data_ptr<float>();
        auto* entropy_out = entropy.mutable_data_ptr<float>();
        const std::size_t id_bytes = k * element_size(teacher.ids.type);
        const std::size_t value_bytes = k * element_size(teacher.values.type);

        std::vector<float> values(k);
        std::vector<bool> seen(static_cast<std::size_t>(options_.vocabulary_size));  // few enough bytes for the caches
        for (std::size_t i = 0; i < positions_.size(); ++i) {
            const auto position = static_cast<std::size_t>(positions_[i]);
            read_ids(teacher.ids.type, teacher.ids.bytes.data() + position * id_bytes, k, id_out + i * k);
            for (std::size_t j = 0; j < k; ++j) {
                const std::int64_t id = id_out[i * k + j];
                if (id < 0 || id >= options_.vocabulary_size) {
                    refuse(ErrorKind::teacher, tokens_.number,
                           "the teacher named token " + std::to_string(id) +
                               ", which is outside the student's vocabulary of " +
                               std::to_string(options_.vocabulary_size));
                }
                if (seen[static_cast<std::size_t>(id)]) {
                    refuse(ErrorKind::teacher, tokens_.number,
                           "the teacher named token " + std::to_string(id) + " twice at position " +
                               std::to_string(position));
                }
                seen[static_cast<std::size_t>(id)] = true;
            }
            for (std::size_t j = 0; j < k; ++j) {
                seen[static_cast<std::size_t>(id_out[i * k + j])] = false;
            }
            read_floats(teacher.values.type, teacher.values.bytes.data() + position * value_bytes, k, values.data());
            float log_tail = kUnknownTail;
            if (with_tail) {
                read_floats(teacher.tail.type, teacher.tail.bytes.data() + position * element_size(teacher.tail.type),
                            1, &log_tail);
            }
            TopkRow row;
            if (!temper_topk_row(values, log_tail, options_.vocabulary_size, options_.temperature,
                                 std::span<float>(p_out + i * k, k), row)) {
                refuse(ErrorKind::teacher, tokens_.number,
                       "the teacher's log-probabilities at position " + std::to_string(position) +
                           " are not a distribution");
            }
            tail_out[i] = row.tail;
            entropy_out[i] = row.negative_entropy;
        }
        DistillTargets& targets = staged_->targets;
        targets.topk_ids = to_device(std::move(ids));
        targets.topk_probabilities = to_device(std::move(probabilities));
        targets.tail_probability = to_device(std::move(tail));
        targets.negative_entropy = to_device(std::move(entropy));
    }

    [[nodiscard]] std::int64_t row_count() const { return static_cast<std::int64_t>(positions_.size()); }

    const TokenBatch& tokens_;
    const MicroBatch& batch_;
    const StagingOptions& options_;
    std::unique_ptr<TensorBatch> staged_;
    std::span<const std::byte> given_;     // the loss mask; empty: the teacher answered every position
    std::vector<std::int64_t> positions_;  // positions of `tokens_` that carry loss
    std::vector<std::int64_t> labels_;     // the labels of these positions
};

}  // namespace

std::unique_ptr<TensorBatch> stage_micro_batch(const MicroBatch& batch, const StagingOptions& options) {
    return Staging(batch, options).run();
}

}  // namespace distilld::models
