#include "server/worker/held_out_rows.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/core/batch_plan.hpp"
#include "server/worker/load_data.hpp"
#include "server/worker/teacher/held_out_teacher.hpp"
#include "server/worker/teacher/job_teachers.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

using RowNumbers = std::vector<std::uint64_t>;

/// The evaluated held-out rows, by part; one part if rows do not name teachers.
std::vector<RowNumbers> evaluated_by_part(const PreparedRun& run) {
    std::vector<RowNumbers> parts(run.mixed_eval ? run.mixed_eval->parts().size() : 1);
    for (std::uint64_t row = 0; row < evaluated_rows(run); ++row) {
        const PartRow place = run.mixed_eval ? run.mixed_eval->place_of(row) : PartRow{0, row};
        parts.at(place.part).push_back(place.row);
    }
    return parts;
}

/// For the teacher that is asked about `part` of the held-out rows (the whole set if rows do not name teachers).
HeldOutWish wish_for(const PreparedRun& run, std::uint32_t part, RowNumbers evaluated) {
    const std::shared_ptr<const Dataset> rows = run.mixed_eval ? run.mixed_eval->parts().at(part).rows : run.eval;
    const ConnectedTeacher& teacher = run.teachers.at(part);
    HeldOutWish wish;
    wish.spec = run.spec.teachers.at(teacher.name);
    wish.info = teacher.info;
    wish.asked = teacher.asked;
    wish.asked_in_need = teacher.asked_in_need;
    wish.data = stored_data(run, rows.get());
    for (const std::uint64_t row : evaluated) {
        wish.tokens += rows->row_length(row);
    }
    wish.rows = [rows, evaluated = std::move(evaluated)] {
        RowNumbers asked;
        for (const std::uint64_t row : evaluated) {
            const TokenBatch batch = rows->batch(0, {row});
            if (batch.documents.empty()) {
                asked.push_back(row);
            }
            for (const RowDocument& document : batch.documents) {
                asked.push_back(document.id);
            }
        }
        return asked;
    };
    const std::string name = teacher.name.empty() ? "teacher" : teacher.name;
    wish.folder = std::filesystem::path(run.spec.output) / ".cache" / "evaluation" / name;
    return wish;
}

}  // namespace

asio::awaitable<void> ask_about_held_out(PreparedRun& run, GraphExecutors executors, EmitEvent emit) {
    const bool of_its_teacher = !run.mixed || run.mixed_eval;
    if (!run.eval || !run.spec.eval.ask_teacher || !run.spec.has_teacher() || !of_its_teacher) {
        co_return;
    }
    run.turn = std::make_shared<TeacherTurn>();
    std::vector<RowNumbers> evaluated = evaluated_by_part(run);
    for (std::uint32_t part = 0; part < run.teachers.size(); ++part) {
        HeldOutWish wish = wish_for(run, part, std::move(evaluated.at(part)));
        auto making = make_held_out_teacher(std::move(wish), *run.turn, executors, emit);
        std::unique_ptr<TeacherSource> source = co_await std::move(making);
        if (!source) {
            run.of_held_out.clear();
            co_return;
        }
        ConnectedTeacher& of_held_out = run.of_held_out.emplace_back();
        of_held_out.name = run.teachers[part].name;
        of_held_out.source = std::move(source);
        of_held_out.info = run.teachers[part].info;
    }
}

EvaluationSet held_out_rows(const PreparedRun& run) {
    EvaluationSet set;
    std::vector<std::uint64_t> rows(evaluated_rows(run));
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    BatchPlan plan = BatchPlan::once({}, run.spec.training.batch_size);
    set.count = rows.empty() ? 0 : plan.append(rows);
    if (run.mixed_eval) {
        set.batches = std::make_shared<BatchSource>(run.mixed_eval, std::move(plan), 1);
    } else if (run.eval) {
        set.batches = std::make_shared<BatchSource>(run.eval, std::move(plan), 1);
    }
    return set;
}

EvaluationSet evaluation_set(const PreparedRun& run, std::uint32_t decode_threads) {
    EvaluationSet set = held_out_rows(run);
    set.turn = run.turn;
    set.teachers = graph_teachers(run.of_held_out, run.spec, decode_threads);
    return set;
}

}  // namespace distilld
