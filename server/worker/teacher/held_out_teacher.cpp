#include "server/worker/teacher/held_out_teacher.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/files/open_file.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/store/manifest.hpp"
#include "pipeline/store/store_writer.hpp"
#include "pipeline/teacher/caching_teacher.hpp"
#include "pipeline/teacher/document_teacher.hpp"
#include "pipeline/teacher/fitting_teacher.hpp"
#include "pipeline/teacher/probe/teacher_fingerprint.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace fs = std::filesystem;

namespace {

/// Where answers are kept, and notes about it.
struct Kept {
    std::shared_ptr<StoreWriter> writer;  ///< null: they are not kept
    std::vector<LogEvent> said;
};

/// The manifest of what is to be kept; the error says why nothing is.
Result<StoreManifest> manifest_of(const HeldOutWish& wish) {
    StoreManifest wanted = wanted_manifest(wish.spec, wish.data, wish.info);
    if (!uses_store(wish.spec)) {
        if (wish.info.kind == TeacherTargets::Kind::hidden_states) {
            return invalid_input("hidden states are not kept");
        }
        const auto is_wide = [](const SampleTensor& tensor) { return tensor.values.type == ElementType::f64; };
        if (std::ranges::any_of(wish.info.tensors, is_wide)) {
            return invalid_input("outputs in fp64 are not kept");
        }
        const bool topk = wish.info.kind == TeacherTargets::Kind::topk;
        if (wish.info.kind != TeacherTargets::Kind::tensors) {
            wanted.format = topk ? StoreFormat::topk : StoreFormat::full;
        }
        wanted.values = StoreValues::f32;
        wanted.k = topk ? wish.info.width : 0;
    }
    Result<StoreManifest> manifest = complete_manifest(std::move(wanted));
    if (!manifest) {
        return manifest.error();
    }
    const std::uint64_t token_bytes = std::max<std::uint64_t>(1, max_token_bytes(*manifest));
    if (wish.tokens > kMaxKeptBytes / token_bytes) {
        return invalid_input("its answers take " + std::to_string(token_bytes) + " bytes per token");
    }
    return manifest;
}

/// The manifest of a store that an earlier run has filled, in any form.
Result<StoreManifest> manifest_that_is_there(const HeldOutWish& wish) {
    if (!store_exists(wish.folder)) {
        return invalid_input("an earlier run stored none of its answers");
    }
    Result<StoreManifest> there = read_manifest(wish.folder);
    if (!there) {
        return there.error();
    }
    const Dataset& rows = wish.data.dataset->asked_about();
    if (there->dataset_hash != rows.hash() || there->sequence_length != wish.data.sequence_length ||
        !same_teacher(there->teacher, wish.info.fingerprint)) {
        return invalid_input("the answers in " + wish.folder.string() + " are of other rows or of another teacher");
    }
    return there;
}

Kept keep_none(std::string why) {
    return {nullptr,
            {LogEvent{"warn", "the teacher is asked about the held-out rows at each evaluation: " + std::move(why)}}};
}

/// Disk.
Kept open_kept(const HeldOutWish& wish) {
    if (wish.tokens == 0) {
        return {};  // with several teachers, one without held-out rows
    }
    const Result<StoreManifest> wanted = manifest_of(wish);
    if (!wanted) {
        return {nullptr,
                {LogEvent{"info", "the teacher is asked about the held-out rows at each evaluation (" +
                                      wanted.error().message + "); set /eval/ask_teacher to false to avoid that"}}};
    }
    Kept kept;
    StoreWriterOptions options;
    options.same_teacher = same_teacher;
    Result<std::unique_ptr<StoreWriter>> opened = open_store_writer(wish.folder, *wanted, options);
    if (!opened && opened.error().kind == ErrorKind::invalid_input) {
        kept.said.push_back(LogEvent{
            "info", "answers about held-out rows are requested again, because the stored ones belong to other rows: " +
                        opened.error().message});
        if (const Result<void> removed = remove_tree(wish.folder); !removed) {
            return keep_none(removed.error().message);
        }
        opened = open_store_writer(wish.folder, *wanted, options);
    }
    if (!opened) {
        return keep_none(opened.error().message);
    }
    kept.writer = std::move(*opened);
    if (kept.writer->progress().held_rows == 0) {
        kept.said.push_back(LogEvent{
            "info",
            "the teacher is asked about the held-out rows once; its answers are kept in " + wish.folder.string()});
    }
    return kept;
}

/// Uses only what exists; not enough without a writer. Disk.
Kept open_complete(const HeldOutWish& wish) {
    const auto not_asked = [](const std::string& why) {
        return Kept{nullptr,
                    {LogEvent{"info", "the teacher is not asked, and of the held-out rows " + why +
                                          ": evaluations have no KL and no agreement"}}};
    };
    const Result<StoreManifest> there = manifest_that_is_there(wish);
    if (!there) {
        return not_asked(there.error().message);
    }
    StoreWriterOptions options;
    options.same_teacher = same_teacher;
    Result<std::unique_ptr<StoreWriter>> opened = open_store_writer(wish.folder, *there, options);
    if (!opened) {
        return not_asked(opened.error().message);
    }
    const std::vector<std::uint64_t> rows = wish.rows();
    if (std::ranges::any_of(rows, [&opened](std::uint64_t row) { return (*opened)->needs(row); })) {
        return not_asked("not all answers are kept in " + wish.folder.string());
    }
    return {std::shared_ptr<StoreWriter>(std::move(*opened)), {}};
}

}  // namespace

asio::awaitable<std::unique_ptr<TeacherSource>> make_held_out_teacher(HeldOutWish wish, TeacherTurn& turn,
                                                                      GraphExecutors executors, EmitEvent emit) {
    if (wish.asked == nullptr) {
        emit(LogEvent{"info",
                      "there is no teacher to ask about the held-out rows, and no store has answers for them: "
                      "evaluations have no KL and no agreement"});
        co_return nullptr;
    }
    auto open = [&wish] { return wish.asked_in_need ? open_complete(wish) : open_kept(wish); };
    Kept kept = co_await run_on(executors.disk, std::move(open));
    for (const LogEvent& event : kept.said) {
        emit(event);
    }
    if (wish.asked_in_need && !kept.writer) {
        co_return nullptr;
    }
    std::unique_ptr<TeacherSource> source = make_turn_taking_teacher(*wish.asked, turn);
    if (wish.info.kind != TeacherTargets::Kind::hidden_states && !wish.data.alignment) {
        source = make_fitting_teacher(std::move(source), wish.data.vocabulary, 0);
    }
    if (kept.writer) {
        CachingTeacherOptions options;
        options.disk = executors.disk;
        options.writer = std::move(kept.writer);
        options.passes_what_it_cannot_keep = true;
        options.on_warning = [emit](const std::string& text) {
            emit(LogEvent{"warn", "answers about held-out rows: " + text});
        };
        source = make_caching_teacher(executors.io, std::move(source), std::move(options));
    }
    if (wish.data.whole_documents) {
        source = make_document_teacher(std::move(source), wish.data.sequence_length,
                                       read_of_teacher(*wish.data.dataset), wish.data.alignment);
    }
    co_return source;
}

}  // namespace distilld
