#include "server/worker/load_data.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "pipeline/data/tokenizer_choice.hpp"

namespace distilld {
namespace {

/// What the export and the first event say of the tokenizer. One that read nothing is not the student's, unless its
/// files are named or lie beside it.
ExportTokenizer settle_tokenizer(PreparedRun& run, TokenizerChoice choice) {
    const bool read_text = run.dataset->has_text() || (run.eval && run.eval->has_text());
    run.tokenizer = choice.description(read_text);
    run.exports_byte_tokenizer = read_text && choice.folder.empty();
    ExportTokenizer exported;
    exported.files = choice.folder;
    exported.of_the_model = choice.of_the_model;
    if (read_text || !choice.folder.empty()) {
        exported.special = std::move(choice.special);
    }
    return exported;
}

}  // namespace

Result<ExportTokenizer> load_data(PreparedRun& run, const std::function<void(const std::string&)>& on_info) {
    const JobSpec& spec = run.spec;
    Result<TokenizerChoice> choice =
        choose_tokenizer({spec.student.tokenizer, spec.student.model, run.student->vocabulary_size()});
    if (!choice) {
        return choice.error();
    }
    DatasetOptions options;
    options.sequence_length = spec.dataset.sequence_length;
    options.packing = spec.dataset.packing;
    options.vocabulary_size = run.student->vocabulary_size();
    options.no_tokenizer_reason = choice->refusal;
    const Tokenizer* tokenizer = choice->tokenizer.get();
    Result<std::unique_ptr<Dataset>> train = load_jsonl_dataset(spec.dataset.train, tokenizer, options);
    if (!train) {
        return Error{train.error().kind, "/dataset/train: " + train.error().message};
    }
    run.dataset = std::move(*train);
    if (!spec.dataset.eval.empty()) {
        Result<std::unique_ptr<Dataset>> eval = load_jsonl_dataset(spec.dataset.eval, tokenizer, options);
        if (!eval) {
            return Error{eval.error().kind, "/dataset/eval: " + eval.error().message};
        }
        run.eval = std::move(*eval);
        on_info("evaluating " + std::to_string(evaluated_rows(run)) + " of the " +
                std::to_string(run.eval->row_count()) + " rows of " + spec.dataset.eval);
    }
    return settle_tokenizer(run, std::move(*choice));
}

std::uint64_t evaluated_rows(const PreparedRun& run) {
    const std::uint64_t rows = run.eval ? run.eval->row_count() : 0;
    const std::uint64_t wanted = run.spec.dataset.eval_rows;
    return wanted == 0 ? rows : std::min(rows, wanted);
}

}  // namespace distilld
