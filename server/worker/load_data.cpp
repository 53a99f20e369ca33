#include "server/worker/load_data.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "base/json_text.hpp"
#include "base/sha256.hpp"
#include "models/families/adapter_config.hpp"
#include "pipeline/data/tokenizer_choice.hpp"
#include "server/worker/training_data.hpp"

namespace distilld {
namespace {

void tell_of_documents(const Dataset& rows, const DatasetSpec& spec, const TeacherTokenizer* teacher,
                       const std::function<void(const std::string&)>& on_info) {
    if (const Dataset* read = rows.teacher_documents()) {
        const std::string other = teacher == nullptr ? "documents have a prompt of their own for the teacher"
                                                     : "the teacher reads documents in tokens of its own, " +
                                                           std::to_string(teacher->alignment->common_ids().size()) +
                                                           " of " + std::to_string(teacher->alignment->teacher_ids()) +
                                                           " are the student's too";
        on_info(other + ": it reads " + std::to_string(read->token_count()) + " tokens, the student " +
                std::to_string(rows.token_count()));
    }
    if (spec.packing != Packing::documents) {
        return;
    }
    const Dataset& documents = rows.asked_about();
    const double filled = 100.0 * static_cast<double>(rows.token_count()) /
                          (static_cast<double>(rows.row_count()) * spec.sequence_length);
    const std::string percent = std::to_string(filled);
    on_info(std::to_string(documents.row_count()) + " documents lie in " + std::to_string(rows.row_count()) +
            " rows, which they fill to " + percent.substr(0, percent.find('.') + 2) + "%");
}

bool read_text(const PreparedRun& run) {
    return run.dataset->has_text() || (run.stand_ins && run.stand_ins->has_text());
}

/// The tokenizer for the export and the first event. One that read nothing is not the student's, unless its files are
/// named or lie beside it.
ExportTokenizer settle_tokenizer(PreparedRun& run, const TokenizerChoice& choice) {
    const bool text = read_text(run) || (run.eval && run.eval->has_text());
    run.tokenizer = run.spec.dataset.format == DataFormat::tensors ? "" : choice.description(text);
    run.exports_byte_tokenizer = text && choice.folder.empty();
    ExportTokenizer exported;
    exported.files = choice.folder;
    exported.of_the_model = choice.of_the_model;
    if (text || !choice.folder.empty()) {
        exported.special = choice.special;
    }
    return exported;
}

/// The rows that take the places of prompts.
Result<void> load_stand_ins(PreparedRun& run, const DataReading& reading) {
    const JobSpec& spec = run.spec;
    Result<std::shared_ptr<const Dataset>> rows = load_rows(reading, "train", spec.dataset.train);
    if (!rows) {
        return rows.error();
    }
    if ((*rows)->teacher_documents() != nullptr) {
        return invalid_input("/dataset/train: " + shown(spec.dataset.train) +
                             " has prompts of their own for the teacher, which /rollout does not take");
    }
    run.stand_ins = std::move(*rows);
    run.data_hash = sha256_text(run.data_hash + run.stand_ins->hash());
    reading.on_info("rollout: the student answers " + std::to_string(run.dataset->row_count()) +
                    " prompts with a chance of " + number_text(spec.rollout->lmbda) + " each; otherwise one of " +
                    std::to_string(run.stand_ins->row_count()) + " rows of " + shown(spec.dataset.train) +
                    " takes its place");
    return {};
}

Result<void> load_rows_of(PreparedRun& run, const DataReading& reading) {
    const JobSpec& spec = run.spec;
    if (spec.names_teachers()) {
        Result<std::shared_ptr<const MixedDataset>> mixed = load_mixed_rows(reading, "train", spec.dataset.train, true);
        if (!mixed) {
            return mixed.error();
        }
        for (const DatasetPart& part : (*mixed)->parts()) {
            reading.on_info(std::to_string(part.rows->row_count()) + " of " + std::to_string((*mixed)->row_count()) +
                            " rows are of the teacher " + part.teacher);
            tell_of_documents(*part.rows, spec.dataset, nullptr, reading.on_info);
        }
        run.mixed = std::move(*mixed);
        run.dataset = run.mixed;
        run.data_hash = run.dataset->hash();
        return {};
    }
    Result<std::shared_ptr<const Dataset>> train = load_training_rows(reading);
    if (!train) {
        return train.error();
    }
    run.dataset = std::move(*train);
    run.data_hash = run.dataset->hash();
    if (spec.rollout && spec.rollout->lmbda < 1) {
        return load_stand_ins(run, reading);
    }
    tell_of_documents(*run.dataset, spec.dataset, reading.teacher, reading.on_info);
    if (spec.has_teacher() && run.dataset->names_teachers()) {
        reading.on_info("rows of " + shown(spec.dataset.train) +
                        " name a teacher, but the spec has only one: all rows go to it (for several, use /teachers)");
    }
    return {};
}

/// With several teachers, each held-out row names one if teachers are asked about it.
Result<void> load_held_out_rows(PreparedRun& run, const DataReading& reading) {
    const JobSpec& spec = run.spec;
    if (run.mixed && spec.eval.ask_teacher) {
        Result<std::shared_ptr<const MixedDataset>> mixed = load_mixed_rows(reading, "eval", spec.dataset.eval, false);
        if (mixed) {
            run.mixed_eval = std::move(*mixed);
            run.eval = run.mixed_eval;
            return {};
        }
        if (mixed.error().kind != ErrorKind::invalid_input) {
            return mixed.error();
        }
        reading.on_info("the teachers are not asked about the held-out rows: " + mixed.error().message);
    }
    Result<std::shared_ptr<const Dataset>> eval = load_rows(reading, "eval", spec.dataset.eval);
    if (!eval) {
        return eval.error();
    }
    run.eval = std::move(*eval);
    return {};
}

}  // namespace

Result<ExportTokenizer> load_data(PreparedRun& run, const std::function<void(const std::string&)>& on_info,
                                  const std::function<void(const std::string&)>& on_warning,
                                  const std::function<bool()>& cancelled) {
    const JobSpec& spec = run.spec;
    const auto model = models::folder_with(spec.student.model, "tokenizer.json");
    const bool samples = spec.dataset.format == DataFormat::tensors;
    Result<TokenizerChoice> choice =
        samples ? TokenizerChoice() : choose_tokenizer({spec.student.tokenizer, model, run.student->vocabulary_size()});
    if (!choice) {
        return choice.error();
    }
    Result<std::shared_ptr<const TeacherTokenizer>> of_teacher = teacher_tokenizer_of(spec, *choice);
    if (!of_teacher) {
        return of_teacher.error();
    }
    run.teacher_tokenizer = std::move(*of_teacher);
    if (spec.dataset.cache && !samples) {
        const Result<std::string> reader = reader_identity(*choice, run.teacher_tokenizer.get());
        if (!reader) {
            return reader.error();
        }
        run.tokens =
            std::make_unique<TokenCache>(std::filesystem::path(spec.output) / ".cache", *reader, on_info, on_warning);
    }
    const DataReading reading{spec,
                              *choice,
                              run.student->vocabulary_size(),
                              run.teacher_tokenizer.get(),
                              on_info,
                              cancelled,
                              run.tokens.get(),
                              on_warning};
    if (Result<void> loaded = load_rows_of(run, reading); !loaded) {
        return loaded.error();
    }
    Result<std::string> hash = tokenizer_hash(read_text(run), *choice);
    if (!hash) {
        return hash.error();
    }
    run.tokenizer_hash = std::move(*hash);
    if (spec.has_teacher()) {
        run.tokenizer_signs = tokenizer_signs(read_text(run), *choice);
    }
    if (!spec.dataset.eval.empty()) {
        if (Result<void> loaded = load_held_out_rows(run, reading); !loaded) {
            return loaded.error();
        }
        on_info("each evaluation will read " + std::to_string(evaluated_rows(run)) + " of the " +
                std::to_string(run.eval->row_count()) + " rows of " + shown(spec.dataset.eval));
    }
    ExportTokenizer exported = settle_tokenizer(run, *choice);
    const std::shared_ptr<const Tokenizer> tokenizer = std::move(choice->tokenizer);
    run.shown_with = run.dataset->has_text() || !choice->folder.empty() ? tokenizer : nullptr;
    Result<TextSamples> texts = make_text_samples(spec, tokenizer, choice->refusal, run.student->vocabulary_size());
    if (!texts) {
        return texts.error();
    }
    run.samples = std::move(*texts);
    return exported;
}

Result<void> try_first_rows(const PreparedRun& run) {
    for (const auto& dataset : {run.dataset, run.stand_ins, run.eval}) {
        if (!dataset) {
            continue;
        }
        std::vector<std::uint64_t> rows(std::min<std::uint64_t>(run.spec.training.batch_size, dataset->row_count()));
        std::iota(rows.begin(), rows.end(), std::uint64_t{0});
        MicroBatch batch;
        batch.tokens = std::make_shared<const TokenBatch>(dataset->batch(0, rows));
        batch.step_target_tokens = batch.tokens->target_tokens;
        if (Result<void> tried = run.student->try_out(batch); !tried) {
            return tried;
        }
    }
    return {};
}

StoredData stored_data(const PreparedRun& run, const Dataset* dataset) {
    // All parts of several teachers are alike in this.
    const bool mixed = run.mixed && dataset == run.mixed.get();
    const Dataset& asked = mixed ? *run.mixed->parts().front().rows : *dataset;
    StoredData data{dataset,
                    asked_length(run.spec.dataset, asked),
                    run.tokenizer_hash,
                    run.student->vocabulary_size(),
                    run.spec.dataset.packing != Packing::joined,
                    run.tokenizer_signs};
    use_tokenizer(data, run.teacher_tokenizer.get());
    return data;
}

std::uint64_t evaluated_rows(const PreparedRun& run) {
    const std::uint64_t rows = run.eval ? run.eval->row_count() : 0;
    const std::uint64_t wanted = std::max(run.spec.eval.max_rows, run.spec.dataset.eval_rows);  // two names for the
                                                                                                // same number
    return wanted == 0 ? rows : std::min(rows, wanted);
}

}  // namespace distilld
