#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <utility>

#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/teacher/teacher_source.hpp"

namespace distilld {

/// Whether the training or an evaluation asks the teacher. Each has the whole limit in its turn, so requests in flight
/// never exceed it. All calls on the graph's executor.
class TeacherTurn {
  public:
    /// The stage that asks for the training; null: not yet, or no longer.
    void set_training(TeacherStage* stage) noexcept { training_ = stage; }

    /// Holds the training's requests back, and waits for those in flight, which end by their own deadlines. Returns at
    /// once if already done.
    boost::asio::awaitable<void> take() {
        if (training_ != nullptr) {
            training_->set_held(true);
            co_await training_->requests_ended();
        }
    }

    /// The training goes on.
    void give_back() {
        if (training_ != nullptr) {
            training_->set_held(false);
        }
    }

  private:
    TeacherStage* training_ = nullptr;
};

/// The training's own teacher, for the fetches of an evaluation: each takes the turn first. Both must outlive it. The
/// training alone counts and closes `teacher`.
[[nodiscard]] std::unique_ptr<TeacherSource> make_turn_taking_teacher(TeacherSource& teacher, TeacherTurn& turn);

}  // namespace distilld
