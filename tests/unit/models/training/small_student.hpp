#pragma once

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "models/training/causal_lm_student.hpp"
#include "tests/support/temporary_folder.hpp"

/// A student small enough to train in a test, and micro-batches for it.
namespace distilld::test {

/// Networks this small gain nothing from a second thread, and its barriers spin when other tests share the cores.
inline const bool kOneThread = (at::set_num_threads(1), true);

inline constexpr std::uint32_t kVocabulary = 61;
inline constexpr std::uint32_t kColumns = 16;
inline constexpr std::uint32_t kTop = 6;

inline std::string config_json(bool tied, int hidden = 32) {
    return R"({"vocab_size":61,"hidden_size":)" + std::to_string(hidden) +
           R"(,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
             "max_position_embeddings":32,"initializer_range":0.1,"tie_word_embeddings":)" +
           (tied ? "true}" : "false}");
}

enum class Teacher { none, topk, logits };

/// Token rows that depend on their number only. Every seventh label is ignored, and the last two of each third row.
inline std::shared_ptr<TokenBatch> token_batch(std::uint64_t first_row, std::uint32_t rows) {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = rows;
    batch->columns = kColumns;
    for (std::uint32_t row = 0; row < rows; ++row) {
        const std::uint64_t number = first_row + row;
        for (std::uint32_t column = 0; column < kColumns; ++column) {
            batch->input_ids.push_back(static_cast<std::int32_t>((number * 31 + column * 7 + number * column) % 61));
            const bool ignored = (number * kColumns + column) % 7 == 3 || (number % 3 == 2 && column >= kColumns - 2);
            batch->labels.push_back(ignored ? kIgnoredLabel
                                            : static_cast<std::int32_t>((number * 31 + column * 11 + 5) % 61));
            batch->target_tokens += ignored ? 0 : 1;
        }
        batch->lengths.push_back(kColumns);
    }
    return batch;
}

struct TeacherBytes {
    std::vector<std::int32_t> ids;
    std::vector<float> values;
};

template <class T>
void append(std::vector<T>& values, const torch::Tensor& tensor) {
    const auto* begin = static_cast<const T*>(tensor.const_data_ptr());
    values.insert(values.end(), begin, begin + tensor.numel());
}

/// The teacher's answer for these rows; `noise` changes what it says of positions without a label.
inline TeacherTargets teacher_targets(const TokenBatch& tokens, std::uint64_t first_row, Teacher kind,
                                      float noise = 0) {
    auto bytes = std::make_shared<TeacherBytes>();
    TeacherTargets targets;
    targets.rows = tokens.rows;
    targets.columns = tokens.columns;
    for (std::uint32_t row = 0; row < tokens.rows; ++row) {
        auto generator = torch::make_generator<torch::CPUGeneratorImpl>(1000 + first_row + row);
        torch::Tensor logits = 2 * torch::randn({kColumns, kVocabulary}, generator, torch::kFloat);
        for (std::uint32_t column = 0; column < kColumns; ++column) {
            if (tokens.labels[row * kColumns + column] == kIgnoredLabel) {
                logits[column] = noise * torch::arange(static_cast<int>(kVocabulary), torch::kFloat);
            }
        }
        if (kind == Teacher::topk) {
            const auto [log_p, ids] = torch::log_softmax(logits, 1).topk(kTop, 1);
            const torch::Tensor narrow_ids = ids.to(torch::kInt).contiguous();
            const torch::Tensor values = log_p.contiguous();
            append<std::int32_t>(bytes->ids, narrow_ids);
            append<float>(bytes->values, values);
        } else {
            append<float>(bytes->values, logits);
        }
    }
    targets.kind = kind == Teacher::topk ? TeacherTargets::Kind::topk : TeacherTargets::Kind::logits;
    targets.width = kind == Teacher::topk ? kTop : kVocabulary;
    targets.ids = {ElementType::i32, std::as_bytes(std::span(bytes->ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(bytes->values))};
    targets.owner = bytes;
    return targets;
}

inline MicroBatch micro_batch(std::uint64_t first_row, std::uint32_t rows, Teacher kind,
                              std::uint64_t step_target_tokens = 0) {
    const auto tokens = token_batch(first_row, rows);
    MicroBatch batch;
    batch.tokens = tokens;
    batch.step_target_tokens = step_target_tokens == 0 ? tokens->target_tokens : step_target_tokens;
    if (kind != Teacher::none) {
        batch.targets = teacher_targets(*tokens, first_row, kind);
    }
    return batch;
}

inline models::CausalLmStudentOptions random_options(bool tied = true) {
    models::CausalLmStudentOptions options;
    options.student.init = StudentInit::random;
    options.student.config_json = config_json(tied);
    options.student.dtype = Dtype::fp32;
    options.training.seed = 11;
    options.training.kd_ratio = 0.5;
    options.training.weight_decay = 0.01;
    options.training.max_grad_norm = 0.5;
    options.with_teacher = true;
    return options;
}

inline std::unique_ptr<Student> make(const models::CausalLmStudentOptions& options) {
    auto student = models::make_causal_lm_student(options);
    if (!student) {
        throw ErrorException(student.error());
    }
    return std::move(*student);
}

/// One optimizer step of two micro-batches with two rows each.
inline StepStats train_step(Student& student, std::uint64_t step, double rate = 1e-2, Teacher kind = Teacher::topk) {
    const std::uint64_t row = step * 4;
    const std::uint64_t total = token_batch(row, 4)->target_tokens;
    for (const std::uint64_t first : {row, row + 2}) {
        const auto staged = student.stage(micro_batch(first, 2, kind, total));
        student.train(*staged);
    }
    return student.finish_step(rate);
}

inline std::string weights_hash(Student& student) {
    const TemporaryFolder folder;
    student.snapshot({})->write_model(folder.path()).value();
    return sha256_file(folder / "model.safetensors").value();
}

}  // namespace distilld::test
