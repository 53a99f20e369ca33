#include "server/worker/training_data.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/cores.hpp"
#include "base/files/open_file.hpp"
#include "base/sha256.hpp"
#include "distilld_version.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "pipeline/data/data_files.hpp"
#include "pipeline/data/packed_dataset.hpp"
#include "pipeline/data/reading_report.hpp"
#include "pipeline/data/tensor_dataset.hpp"
#include "pipeline/data/tokenizer/tokenizer_hash.hpp"

namespace distilld {

namespace {

constexpr const char* kPromptsField = "/rollout/prompts";

DatasetOptions options_of(const DataReading& reading, const std::string& pointer) {
    const DatasetSpec& spec = reading.spec.dataset;
    const std::uint32_t threads = reading.spec.training.threads;
    DatasetOptions options;
    options.sequence_length = spec.sequence_length;
    options.teacher_sequence_length = spec.teacher_sequence_length;
    options.packing = spec.packing == Packing::joined;
    options.overflow = effective_overflow(spec);
    options.vocabulary_size = reading.vocabulary_size;
    options.no_tokenizer_reason = reading.choice.refusal;
    options.completion_only_loss = spec.completion_only_loss;
    options.tokenizer_folder = reading.choice.folder.string();
    options.threads = threads != 0 ? threads : core_count();
    options.cache = reading.cache;
    if (pointer == kPromptsField) {
        options.prompts = true;
        options.sequence_length = reading.spec.rollout->max_prompt_tokens;
        options.overflow = Overflow::error;
    }
    const bool held_out = pointer == "/dataset/eval";
    options.teacher_tokenizer = held_out && !reading.spec.eval.ask_teacher ? nullptr : reading.teacher;
    options.keeps_labels = held_out;
    options.on_progress = [report = ReadingReport(pointer, reading.on_info),
                           cancelled = reading.cancelled](const ReadingProgress& progress) mutable {
        report(progress);
        return !cancelled();
    };
    return options;
}

Error behind(const std::string& pointer, const Error& error) {
    return Error{error.kind, pointer + ": " + error.message};
}

/// Reports which part of the input the rows have, unless it is nearly all.
void tell_of_loss(const Dataset& rows, const DataReading& reading, const std::string& pointer) {
    constexpr double kNearlyAll = 0.9;
    const auto used = static_cast<double>(rows.token_count());
    const auto read = static_cast<double>(rows.tokens_read());
    if (!reading.on_warning || used >= kNearlyAll * read) {
        return;
    }
    const DatasetSpec& spec = reading.spec.dataset;
    const std::string percent = std::to_string(100.0 * used / read);
    std::string text = pointer + ": " + std::to_string(rows.token_count()) + " of " +
                       std::to_string(rows.tokens_read()) + " tokens are used (" +
                       percent.substr(0, percent.find('.') + 2) + "%)";
    if (spec.packing != Packing::joined && effective_overflow(spec) == Overflow::truncate) {
        text += ": documents are cut after " + std::to_string(spec.sequence_length + std::uint64_t{1}) +
                " tokens; raise /dataset/sequence_length, or set /dataset/overflow to \"split\"";
    } else {
        text += ": the rest has no target";
    }
    reading.on_warning(text);
}

}  // namespace

Result<std::shared_ptr<const Dataset>> load_training_rows(const DataReading& reading) {
    const JobSpec& spec = reading.spec;
    return spec.rollout ? load_rows(reading, "prompts", spec.rollout->prompts)
                        : load_rows(reading, "train", spec.dataset.train);
}

std::string shown(const std::vector<std::string>& files) {
    return files.size() == 1 ? files.front() : std::to_string(files.size()) + " files";
}

Result<std::shared_ptr<const MixedDataset>> load_mixed_rows(const DataReading& reading, const std::string& field,
                                                            const std::vector<std::string>& entries,
                                                            bool every_teacher) {
    const std::string pointer = "/dataset/" + field;
    const auto files = find_data_files(entries, pointer);
    if (!files) {
        return files.error();
    }
    DatasetOptions options = options_of(reading, pointer);
    for (const auto& [name, teacher] : reading.spec.teachers) {
        options.teachers.push_back(name);
    }
    Result<std::shared_ptr<const MixedDataset>> rows =
        load_mixed_dataset(*files, reading.choice.tokenizer.get(), options, every_teacher);
    if (!rows) {
        return behind(pointer, rows.error());
    }
    tell_of_loss(**rows, reading, pointer);
    const DatasetSpec& spec = reading.spec.dataset;
    if (spec.packing == Packing::documents) {
        return pack_documents(**rows, spec.sequence_length);
    }
    return rows;
}

Result<std::shared_ptr<const Dataset>> load_rows(const DataReading& reading, const std::string& field,
                                                 const std::vector<std::string>& entries) {
    const std::string pointer = field == "prompts" ? kPromptsField : "/dataset/" + field;
    const auto files = find_data_files(entries, pointer);
    if (!files) {
        return files.error();
    }
    if (reading.spec.dataset.format == DataFormat::tensors) {
        Result<std::shared_ptr<const Dataset>> samples = load_tensor_dataset(*files, reading.cancelled);
        return samples ? samples : behind(pointer, samples.error());
    }
    Result<std::unique_ptr<Dataset>> rows =
        load_jsonl_dataset(*files, reading.choice.tokenizer.get(), options_of(reading, pointer));
    if (!rows) {
        return behind(pointer, rows.error());
    }
    std::shared_ptr<const Dataset> loaded(std::move(*rows));
    tell_of_loss(*loaded, reading, pointer);
    const DatasetSpec& spec = reading.spec.dataset;
    return spec.packing == Packing::documents ? pack_documents(std::move(loaded), spec.sequence_length) : loaded;
}

Result<std::shared_ptr<const TeacherTokenizer>> teacher_tokenizer_of(const JobSpec& spec,
                                                                     const TokenizerChoice& student) {
    const TeacherSpec* teacher = spec.teacher();
    if (teacher == nullptr || teacher->tokenizer.empty()) {
        return std::shared_ptr<const TeacherTokenizer>();
    }
    Result<std::shared_ptr<TeacherTokenizer>> made = load_teacher_tokenizer(teacher->tokenizer, student);
    if (!made) {
        return made.error();
    }
    Result<std::string> hash = tokenizer_hash(true, (*made)->choice);
    if (!hash) {
        return invalid_at("/teacher/tokenizer", hash.error());
    }
    (*made)->hash = std::move(*hash);
    (*made)->signs = tokenizer_signs(true, (*made)->choice);
    return std::shared_ptr<const TeacherTokenizer>(std::move(*made));
}

Result<std::string> reader_identity(const TokenizerChoice& choice, const TeacherTokenizer* teacher) {
    if (teacher != nullptr) {
        const Result<std::string> student = reader_identity(choice, nullptr);
        const Result<std::string> other = reader_identity(teacher->choice, nullptr);
        return student && other ? Result<std::string>(*student + "; " + *other) : student ? other : student;
    }
    std::string identity = std::string("distilld ") + kVersion;
    if (choice.tokenizer == nullptr) {
        return identity + ", ids only";
    }
    identity += ", " + choice.tokenizer->kind();
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
        std::error_code failed;
        if (choice.folder.empty() || !std::filesystem::exists(choice.folder / name, failed)) {
            continue;
        }
        const Result<std::string> hash = sha256_file(choice.folder / name);
        if (!hash) {
            return hash.error();
        }
        identity += std::string(", ") + name + " " + *hash;
    }
    return identity;
}

Result<std::string> tokenizer_hash(bool has_text, const TokenizerChoice& choice) {
    if (!has_text) {
        return std::string();
    }
    if (choice.folder.empty() || is_byte_tokenizer(choice.folder)) {
        return std::string("bytes");
    }
    return sha256_file(choice.folder / "tokenizer.json");
}

TokenizerSigns tokenizer_signs(bool has_text, const TokenizerChoice& choice) {
    TokenizerSigns signs;
    if (choice.folder.empty() && (choice.tokenizer == nullptr || !has_text)) {
        return signs;
    }
    signs.name = choice.folder.empty() ? choice.tokenizer->kind() : choice.folder.string();
    if (choice.folder.empty()) {
        signs.hash = byte_tokenizer_hash();
    } else if (const Result<std::string> hash = tokenizer_hash_of(choice.folder)) {
        signs.hash = *hash;
    }
    if (choice.tokenizer != nullptr) {
        signs.size = choice.tokenizer->vocabulary_size();
        try {
            signs.ids = choice.tokenizer->encode(kTokenizerText);
            signs.frame = choice.tokenizer->encode("").size();
        } catch (const ErrorException&) {
            signs.ids.clear();  // its rules make the text too long
        }
    }
    return signs;
}

}  // namespace distilld
