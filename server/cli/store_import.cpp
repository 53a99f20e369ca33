#include "server/cli/store_import.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/files/files.hpp"
#include "pipeline/core/target_rows.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/store/kld_file.hpp"
#include "pipeline/store/store_writer.hpp"

namespace distilld::cli {

namespace {

constexpr std::uint32_t kDefaultEntries = 64;

/// A line of the dataset: the chunk's tokens. Those with a row before them are targets.
Result<std::string> line_of(const StoreImport& wanted, const KldFile& file, std::uint32_t chunk) {
    std::string ids;
    std::string labels;
    for (std::uint32_t position = 0; position < file.context(); ++position) {
        const std::int32_t token = position == 0 && wanted.bos ? *wanted.bos : file.token(chunk, position);
        if (token < 0 || static_cast<std::uint32_t>(token) >= file.vocabulary()) {
            return invalid_input(wanted.file.string() + ": token " + std::to_string(token) + " of chunk " +
                                 std::to_string(chunk) + " is outside its vocabulary of " +
                                 std::to_string(file.vocabulary()));
        }
        const char* const comma = position == 0 ? "" : ",";
        ids += comma + std::to_string(token);
        labels += comma + std::to_string(position > file.first_row() ? token : kIgnoredLabel);
    }
    return R"({"input_ids":[)" + ids + R"(],"labels":[)" + labels + "]}\n";
}

Result<void> write_dataset(const StoreImport& wanted, const KldFile& file) {
    std::string text;
    for (std::uint32_t chunk = 0; chunk < file.chunks(); ++chunk) {
        const Result<std::string> line = line_of(wanted, file, chunk);
        if (!line) {
            return line.error();
        }
        text += *line;
    }
    if (std::filesystem::exists(wanted.dataset)) {
        const Result<std::string> there = read_text_file(wanted.dataset, text.size() + 1);
        if (there && *there == text) {
            return {};
        }
        return invalid_input(wanted.dataset.string() + ": is there already, and is not what " + wanted.file.string() +
                             " gives");
    }
    Result<AtomicFile> written = AtomicFile::create(wanted.dataset);
    if (!written) {
        return written.error();
    }
    if (Result<void> done = written->write(std::string_view(text)); !done) {
        return done;
    }
    return written->commit();
}

/// The answers to one row of the dataset. Positions before the file's first carry no loss, and their values mean
/// nothing.
class Answers {
  public:
    Answers(const KldFile& file, const StoreImport& wanted)
        : file_(file),
          whole_(wanted.store.format == StoreFormat::full || wanted.store.format == StoreFormat::sampled),
          k_(wanted.store.k != 0 ? wanted.store.k : kDefaultEntries),
          row_(file.vocabulary()) {}

    Result<TeacherTargets> of(std::uint32_t chunk) { return whole_ ? logits_of(chunk) : entries_of(chunk); }

  private:
    [[nodiscard]] std::uint32_t columns() const { return file_.context() - 1; }

    /// Reads the row of a position; zeros if the file has none.
    void read(std::uint32_t chunk, std::uint32_t position, std::span<float> values) const {
        if (position < file_.first_row()) {
            std::fill(values.begin(), values.end(), 0.0F);
        } else {
            file_.read_row(chunk, position, values);
        }
    }

    Result<TeacherTargets> logits_of(std::uint32_t chunk) const {
        auto values = std::make_shared<std::vector<float>>(std::size_t{columns()} * file_.vocabulary());
        for (std::uint32_t position = 0; position < columns(); ++position) {
            read(chunk, position,
                 std::span(*values).subspan(std::size_t{position} * file_.vocabulary(), file_.vocabulary()));
        }
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::logits;
        targets.rows = 1;
        targets.columns = columns();
        targets.width = file_.vocabulary();
        targets.vocabulary = file_.vocabulary();
        targets.values = {ElementType::f32, std::as_bytes(std::span(*values))};
        targets.owner = std::move(values);
        return targets;
    }

    Result<TeacherTargets> entries_of(std::uint32_t chunk) {
        TopKReducer reducer(1, columns(), file_.vocabulary(), k_);
        for (std::uint32_t position = 0; position < columns(); ++position) {
            read(chunk, position, row_);
            if (!reducer.add_row(row_)) {
                return invalid_input("chunk " + std::to_string(chunk) + ", position " + std::to_string(position) +
                                     ": its log-probabilities are not numbers");
            }
        }
        TeacherTargets targets = reducer.finish();
        targets.vocabulary = file_.vocabulary();
        return targets;
    }

    const KldFile& file_;
    bool whole_;
    std::uint32_t k_;
    std::vector<float> row_;
};

StoreManifest manifest_of(const StoreImport& wanted, const KldFile& file, const Dataset& dataset) {
    StoreManifest manifest;
    manifest.format = wanted.store.format;
    manifest.values = wanted.store.values;
    manifest.k = wanted.store.k != 0 ? wanted.store.k : kDefaultEntries;
    manifest.p = wanted.store.p;
    manifest.samples = wanted.store.samples;
    manifest.vocabulary = file.vocabulary();
    manifest.rows = dataset.row_count();
    manifest.sequence_length = file.context() - 1;
    manifest.dataset_hash = dataset.hash();
    manifest.teacher_name = "llama.cpp, " + wanted.file.filename().string();
    manifest.generator = wanted.store.generator;
    return manifest;
}

}  // namespace

Result<void> import_kld_file(const StoreImport& wanted) {
    const Result<KldFile> file = KldFile::open(wanted.file);
    if (!file) {
        return file.error();
    }
    if (Result<void> written = write_dataset(wanted, *file); !written) {
        return written;
    }
    DatasetOptions options;
    options.sequence_length = file->context() - 1;
    options.packing = false;
    options.vocabulary_size = file->vocabulary();
    const Result<std::unique_ptr<Dataset>> dataset =
        load_jsonl_dataset(std::span(&wanted.dataset, 1), nullptr, options);
    if (!dataset) {
        return dataset.error();
    }
    const Result<std::unique_ptr<StoreWriter>> writer =
        open_store_writer(wanted.to, manifest_of(wanted, *file, **dataset));
    if (!writer) {
        return writer.error();
    }
    Answers answers(*file, wanted);
    for (std::uint32_t chunk = 0; chunk < file->chunks(); ++chunk) {
        if (!(*writer)->needs(chunk)) {
            continue;
        }
        const Result<TeacherTargets> targets = answers.of(chunk);
        if (!targets) {
            return Error{targets.error().kind, wanted.file.string() + ": " + targets.error().message};
        }
        if (Result<void> added = (*writer)->add((*dataset)->batch(chunk, {chunk}), *targets); !added) {
            return added;
        }
    }
    return (*writer)->sync();
}

}  // namespace distilld::cli
