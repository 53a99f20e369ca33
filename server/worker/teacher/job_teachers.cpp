#include "server/worker/teacher/job_teachers.hpp"

#include <utility>
#include <variant>

#include "base/join.hpp"
#include "pipeline/core/teacher_name.hpp"
#include "server/worker/teacher/teacher_targets.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

/// Events about the connection of a teacher name it.
EmitEvent named_events(const std::string& name, const EmitEvent& emit) {
    return [name, emit](const WorkerEvent& event) {
        if (const auto* log = std::get_if<LogEvent>(&event)) {
            emit(LogEvent{log->level, said_of_teacher(name, log->message)});
        } else if (const auto* waiting = std::get_if<WaitingEvent>(&event); waiting && !waiting->message.empty()) {
            emit(WaitingEvent{waiting->code, said_of_teacher(name, waiting->message), waiting->since});
        } else {
            emit(event);
        }
    };
}

/// Rows of all teachers share one array.
Result<void> check_alike(const std::vector<ConnectedTeacher>& teachers) {
    const ConnectedTeacher& first = teachers.front();
    for (const ConnectedTeacher& other : teachers) {
        const std::string pointer = teacher_pointer(other.name);
        if (other.info.kind != first.info.kind) {
            return invalid_input(pointer + "/targets: the teacher sends " + to_string(choice_of(other.info.kind)) +
                                 ", " + first.name + " sends " + to_string(choice_of(first.info.kind)) +
                                 ": all teachers of a job must send the same");
        }
        if (other.info.width != first.info.width) {
            return invalid_input(pointer + "/top_k: the teacher sends " + std::to_string(other.info.width) +
                                 " values per position, " + first.name + " sends " + std::to_string(first.info.width) +
                                 ": all teachers of a job must send as many");
        }
    }
    return {};
}

}  // namespace

asio::awaitable<Result<std::vector<ConnectedTeacher>>> connect_teachers(TeachersWish wish, GraphExecutors executors,
                                                                        RunControl& control, EmitEvent emit) {
    std::vector<ConnectedTeacher> teachers;
    for (const auto& [name, spec] : wish.specs) {
        TeacherWish one{spec, wish.batch_rows, wish.data, wish.local, std::move(wish.probed)};
        one.guard = wish.guard;
        if (const auto found = wish.for_host.find(name); found != wish.for_host.end()) {
            one.local = found->second;
        }
        if (const auto found = wish.bearers.find(name); found != wish.bearers.end()) {
            one.bearer = found->second;
        }
        if (!name.empty() && spec.targets == TargetsChoice::automatic && spec.top_k == 0) {
            one.spec.targets = TargetsChoice::logits;  // the student holds only one teacher's head
        }
        if (wish.mixed != nullptr) {
            one.data.dataset = wish.mixed->parts().at(teachers.size()).rows.get();
        }
        Result<ConnectedTeacher> connected =
            co_await connect_teacher(std::move(one), executors, control, named_events(name, emit));
        if (!connected && connected.error().kind == ErrorKind::cancelled) {
            co_return connected.error();
        }
        if (!connected) {
            co_return Error{connected.error().kind, said_of_teacher(name, connected.error().message)};
        }
        connected->name = name;
        teachers.push_back(std::move(*connected));
    }
    if (Result<void> alike = check_alike(teachers); !alike) {
        co_return alike.error();
    }
    co_return teachers;
}

std::string description_of(const std::vector<ConnectedTeacher>& teachers) {
    const auto text_of = [](const ConnectedTeacher& teacher) {
        return (teacher.name.empty() ? "" : teacher.name + ": ") + teacher.info.description;
    };
    return joined(teachers, "; ", text_of);
}

std::vector<GraphTeacher> graph_teachers(const std::vector<ConnectedTeacher>& teachers, const JobSpec& spec,
                                         std::uint32_t decode_threads) {
    std::vector<GraphTeacher> made;
    for (const ConnectedTeacher& teacher : teachers) {
        made.push_back({teacher.name, teacher.source.get(),
                        teacher_stage_options(spec.teachers.at(teacher.name), *teacher.source, teacher.info,
                                              spec.training.batch_size, spec.dataset.sequence_length, decode_threads)});
    }
    return made;
}

}  // namespace distilld
