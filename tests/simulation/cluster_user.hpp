#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/simulation/cluster_service.hpp"

namespace distilld::test {

/// Who runs now; null: the service is down.
using FindService = std::function<std::shared_ptr<ServiceProcess>()>;

/// Submits one job and gives it commands, one after the other, each again until it is answered.
class User {
  public:
    User(Stage& stage, FindService service, std::uint32_t number);

    /// The first request. More follow it, with pauses.
    void begin();
    [[nodiscard]] bool is_done() const { return next_ == orders_.size(); }
    [[nodiscard]] const std::string& job() const { return job_; }

    // What it knows from answers.
    [[nodiscard]] bool accepted() const { return accepted_; }
    [[nodiscard]] bool deleted() const { return deleted_; }
    [[nodiscard]] bool cancelled() const { return cancelled_; }
    [[nodiscard]] bool pauses() const;
    /// Asked for, answered or not.
    [[nodiscard]] bool asked_to_cancel() const { return asked_to_cancel_; }

  private:
    void draw_orders();
    void send();
    /// In the service. True: it is answered for good.
    bool carry_out(ServiceProcess& service, const std::string& order);
    bool submit(ServiceProcess& service);
    void on_answer(std::size_t order, bool final);

    Stage& stage_;
    FindService service_;
    std::string job_;
    std::string spec_;
    std::vector<std::string> orders_;  ///< submit, a verb, or delete
    std::size_t next_ = 0;
    bool accepted_ = false;
    bool deleted_ = false;
    bool cancelled_ = false;
    bool asked_to_cancel_ = false;
};

}  // namespace distilld::test
