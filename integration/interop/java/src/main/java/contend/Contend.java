package contend;

import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Takes one lock again and again, and says when it had it.
 *
 * <p>Arguments: kind (lock, fenced, red), client number, key, time to run in ms, hold in µs, longest pause
 * in µs, then the servers as redis://host:port. It prints {"ready":true}, begins at a line on standard
 * input, and prints {"tenures":[...]} at the end. Times are System.nanoTime, which on Linux is
 * CLOCK_MONOTONIC and so the clock of all processes of the machine. The end of standard input is the end
 * of this process.
 */
public final class Contend {
    private Contend() {}

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // whatever a library prints
        String kind = args[0];
        String client = args[1];
        String key = args[2];
        long run = Long.parseLong(args[3]) * 1_000_000;
        long hold = Long.parseLong(args[4]) * 1_000;
        long pause = Long.parseLong(args[5]) * 1_000;

        List<RedissonClient> clients = new ArrayList<>();
        for (int i = 6; i < args.length; i++) {
            Config config = new Config().setThreads(4).setNettyThreads(4);
            config.useSingleServer().setAddress(args[i]).setConnectionMinimumIdleSize(2).setConnectionPoolSize(8);
            clients.add(Redisson.create(config));
        }
        RFencedLock fenced = kind.equals("fenced") ? clients.get(0).getFencedLock(key) : null;
        RLock lock = fenced;
        if (kind.equals("lock")) {
            lock = clients.get(0).getLock(key);
        } else if (kind.equals("red")) {
            lock = redLock(clients, key);
        }

        // The scripts are loaded and the classes too, on a lock that nobody else wants.
        String own = key + ":warm:" + client;
        RLock warm = kind.equals("red") ? redLock(clients, own)
                : fenced != null ? clients.get(0).getFencedLock(own) : clients.get(0).getLock(own);
        for (int i = 0; i < 200; i++) {
            warm.lock();
            warm.unlock();
        }

        out.println("{\"ready\":true}");
        out.flush();
        if (System.in.read() < 0) {
            Runtime.getRuntime().halt(3);
        }
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException e) {
                // the same
            }
            Runtime.getRuntime().halt(3);
        });
        watch.setDaemon(true);
        watch.start();

        StringBuilder tenures = new StringBuilder("{\"tenures\":[");
        String comma = "";
        for (long end = System.nanoTime() + run; ; ) {
            long asked = System.nanoTime();
            if (asked >= end) {
                break;
            }
            long token = 0;
            if (fenced != null) {
                token = fenced.lockAndGetToken();
            } else {
                lock.lock();
            }
            long from = System.nanoTime();
            LockSupport.parkNanos(hold);
            long to = System.nanoTime();
            lock.unlock();
            tenures.append(comma).append("{\"client\":").append(client).append(",\"token\":").append(token)
                    .append(",\"asked\":").append(asked).append(",\"from\":").append(from)
                    .append(",\"to\":").append(to).append(",\"back\":").append(System.nanoTime()).append("}");
            comma = ",";
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(pause + 1));
        }
        out.println(tenures.append("]}"));
        out.flush();
        for (RedissonClient c : clients) {
            c.shutdown();
        }
        System.exit(0);
    }

    @SuppressWarnings("deprecation") // that it is deprecated is why it is asked for
    private static RLock redLock(List<RedissonClient> clients, String key) {
        RLock[] locks = new RLock[clients.size()];
        for (int i = 0; i < locks.length; i++) {
            locks[i] = clients.get(i).getLock(key);
        }
        return new RedissonRedLock(locks);
    }
}
